"""What ``millstream nats-server -h`` says."""

HELP = """\
Usage: millstream nats-server [flags]

Serves as the nats-server command would. A flag takes one dash or two, and its value as the next
word or behind "=". What is typed wins over what the configuration file says.

Server
  -a, --addr, --net <host>           where to listen              [0.0.0.0]
  -p, --port <port>                  for clients; -1 for any      [4222]
  -n, --name, --server_name <name>   what the server calls itself [its id]
  -m, --http_port <port>             monitoring over HTTP; -1 for any
  -ms, --https_port <port>           monitoring over HTTPS
  -c, --config <file>                configuration file, read again at SIGHUP
  -t                                 check the configuration file and exit
  -P, --pid <file>                   write the process id here
      --ports_file_dir <dir>         write the ports taken to nats-server_<pid>.ports in here
      --client_advertise <host:port> the address that clients are told
  -sl, --signal <command>[=<pid>]    tell a running server: ldm, stop, quit, term, reopen, reload

Log
  -l, --log <file>                   log to a file instead of standard error
  -s, --syslog                       log to the system's log
  -r, --remote_syslog <url>          or to one elsewhere: udp://host:514, tcp://…, unix://…
      --log_size_limit <bytes>       put the file aside at this size
  -T, --logtime                      put the time on each line    [true]
      --logtime_utc                  in UTC
  -D, --debug   -V, --trace   -DV   -VV   -DVV                    say more
      --max_traced_msg_len <bytes>   cut traced messages

JetStream
  -js, --jetstream                   keep streams
  -sd, --store_dir <dir>             where to keep them

Who may connect
      --user <name> --pass <password>
      --auth <token>
      --tls --tlscert <file> --tlskey <file>
      --tlsverify --tlscacert <file>

  -v, --version      -h, --help      --help_tls

Not supported, and refused by name: clusters (--cluster, --routes)."""

TLS_HELP = """\
A tls block in the configuration file:

  tls {
    cert_file: "server.pem"       the certificate, and
    key_file:  "server-key.pem"   its private key; or certs: [ {cert_file, key_file} ... ]
    ca_file:   "ca.pem"           who signs the certificates of clients
    verify: true                  clients must show a certificate
    verify_and_map: true          and it says which user they are
    timeout: 2                    seconds for the handshake
    handshake_first: auto         true, false, auto, or how long to wait for it: "100ms"
    min_version: "1.2"            or "1.3"
    pinned_certs: [ ... ]         SHA-256 of the public keys that are let in, in hex
    cipher_suites: [ ... ]        as in TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    curve_preferences: [ ... ]    CurveP256, CurveP384, CurveP521, X25519
  }"""
