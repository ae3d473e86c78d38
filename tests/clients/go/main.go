// Programs on nats.go: each moves messages in one way and says in one line of JSON what came of it.
//
//	clients URL WAY COUNT
//
// Ways: consume, messages, fetch, ordered, kv, object, micro; and restarts, which goes on until its
// input ends, while somebody stops and starts the server.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

var patient = jetstream.WithStallWait(time.Minute) // a server may sync before each ack

// Tally says what a way of reading saw.
type Tally struct {
	Way        string `json:"way"`
	Sent       int    `json:"sent"`
	Received   int    `json:"received"`
	Inversions int    `json:"inversions"`
	Lost       int    `json:"lost"`
	Repeated   int    `json:"repeated"`

	mu   sync.Mutex
	last uint64
	seen map[uint64]bool
}

func (t *Tally) note(seq uint64, again bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[seq] {
		t.Repeated++
		return len(t.seen)
	}
	t.seen[seq] = true
	t.Received++
	if seq < t.last && !again {
		t.Inversions++
	}
	t.last = max(t.last, seq)
	return len(t.seen)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Minute)
}

func main() {
	url, way := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ReconnectBufSize(-1))
	must(err)
	js, err := jetstream.New(nc)
	must(err)
	tally := &Tally{Way: way, Sent: count, seen: map[uint64]bool{}}
	ways := map[string]func(*nats.Conn, jetstream.JetStream, *Tally){
		"consume": consume, "messages": messages, "fetch": fetch, "ordered": ordered,
		"kv": keyValue, "object": object, "micro": service, "restarts": restarts,
	}
	ways[way](nc, js, tally)
	tally.Lost = tally.Sent - len(tally.seen)
	told, _ := json.Marshal(tally)
	fmt.Println(string(told))
}

func filled(js jetstream.JetStream, name string, count int) jetstream.Stream {
	ctx, cancel := background()
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
	must(err)
	for i := 1; i <= count; i++ {
		_, err := js.PublishAsync(fmt.Sprintf("%s.%d", name, i%7), []byte(strconv.Itoa(i)), patient)
		must(err)
	}
	<-js.PublishAsyncComplete()
	return stream
}

func seqOf(msg jetstream.Msg) (uint64, bool) {
	meta, err := msg.Metadata()
	must(err)
	return meta.Sequence.Stream, meta.NumDelivered > 1
}

// consume: a callback; fewer acks may be pending than a batch has messages, and refills overlap.
func consume(_ *nats.Conn, js jetstream.JetStream, tally *Tally) {
	ctx, cancel := background()
	defer cancel()
	stream := filled(js, "CONSUME", tally.Sent)
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 300})
	must(err)
	done := make(chan struct{})
	running, err := consumer.Consume(func(msg jetstream.Msg) {
		must(msg.Ack())
		if tally.note(seqOf(msg)) == tally.Sent {
			close(done)
		}
	}, jetstream.PullMaxMessages(500), jetstream.PullThresholdMessages(450))
	must(err)
	<-done
	running.Stop()
}

// messages: an iterator, bounded by bytes.
func messages(_ *nats.Conn, js jetstream.JetStream, tally *Tally) {
	ctx, cancel := background()
	defer cancel()
	stream := filled(js, "MESSAGES", tally.Sent)
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "M", AckPolicy: jetstream.AckExplicitPolicy})
	must(err)
	iterator, err := consumer.Messages(jetstream.PullMaxBytes(64 << 10))
	must(err)
	for {
		msg, err := iterator.Next()
		must(err)
		must(msg.Ack())
		if tally.note(seqOf(msg)) == tally.Sent {
			break
		}
	}
	iterator.Stop()
}

// fetch: batch by batch, by turns with and without waiting.
func fetch(_ *nats.Conn, js jetstream.JetStream, tally *Tally) {
	ctx, cancel := background()
	defer cancel()
	stream := filled(js, "FETCH", tally.Sent)
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "F", AckPolicy: jetstream.AckExplicitPolicy})
	must(err)
	for turn := 0; len(tally.seen) < tally.Sent; turn++ {
		var batch jetstream.MessageBatch
		var err error
		if turn%2 == 0 {
			batch, err = consumer.Fetch(317, jetstream.FetchMaxWait(5*time.Second))
		} else {
			batch, err = consumer.FetchNoWait(211)
		}
		must(err)
		for msg := range batch.Messages() {
			must(msg.Ack())
			tally.note(seqOf(msg))
		}
		must(batch.Error())
	}
}

// ordered: an ordered consumer, which begins anew whenever a message is out of order.
func ordered(_ *nats.Conn, js jetstream.JetStream, tally *Tally) {
	ctx, cancel := background()
	defer cancel()
	stream := filled(js, "ORDERED", tally.Sent)
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	must(err)
	done := make(chan struct{})
	running, err := consumer.Consume(func(msg jetstream.Msg) {
		if tally.note(seqOf(msg)) == tally.Sent {
			close(done)
		}
	})
	must(err)
	<-done
	running.Stop()
	if name := consumer.CachedInfo().Name; name[len(name)-2:] != "_1" {
		tally.Repeated++ // it began anew
	}
}

// keyValue: a watcher sees every put of a bucket with history, in order.
func keyValue(_ *nats.Conn, js jetstream.JetStream, tally *Tally) {
	ctx, cancel := background()
	defer cancel()
	bucket, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "BUCKET", History: 64})
	must(err)
	watcher, err := bucket.WatchAll(ctx, jetstream.IncludeHistory())
	must(err)
	go func() {
		for i := 1; i <= tally.Sent; i++ {
			_, err := js.PublishAsync(fmt.Sprintf("$KV.BUCKET.key%d", i%1000), []byte(strconv.Itoa(i)), patient)
			must(err)
		}
	}()
	for entry := range watcher.Updates() {
		if entry != nil && tally.note(entry.Revision(), false) == tally.Sent {
			break
		}
	}
	must(watcher.Stop())
	entry, err := bucket.Get(ctx, "key1")
	must(err)
	if entry.Revision()%1000 != 1 {
		tally.Inversions++
	}
}

// object: large objects come back as they were put; a message is a chunk of 1 KiB.
func object(_ *nats.Conn, js jetstream.JetStream, tally *Tally) {
	ctx, cancel := background()
	defer cancel()
	store, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "OBJECTS"})
	must(err)
	body := make([]byte, 1024*tally.Sent)
	for at := range body {
		body[at] = byte(at / 1024 * 31)
	}
	meta := jetstream.ObjectMeta{Name: "one", Opts: &jetstream.ObjectMetaOptions{ChunkSize: 1024}}
	_, err = store.Put(ctx, meta, bytes.NewReader(body))
	must(err)
	back, err := store.GetBytes(ctx, "one")
	must(err)
	for at := 0; at < tally.Sent && len(back) == len(body); at++ {
		if bytes.Equal(back[at*1024:(at+1)*1024], body[at*1024:(at+1)*1024]) {
			tally.note(uint64(at+1), false)
		}
	}
}

// service: requests to a micro service, answered once each.
func service(nc *nats.Conn, _ jetstream.JetStream, tally *Tally) {
	made, err := micro.AddService(nc, micro.Config{Name: "echo", Version: "1.0.0"})
	must(err)
	must(made.AddEndpoint("echo", micro.HandlerFunc(func(req micro.Request) { _ = req.Respond(req.Data()) })))
	inbox := nats.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	must(err)
	must(replies.SetPendingLimits(-1, -1))
	go func() {
		for i := 1; i <= tally.Sent; i++ {
			must(nc.PublishRequest("echo", inbox, []byte(strconv.Itoa(i))))
		}
		must(nc.Flush())
	}()
	for len(tally.seen) < tally.Sent {
		msg, err := replies.NextMsg(30 * time.Second)
		must(err)
		seq, err := strconv.ParseUint(string(msg.Data), 10, 64)
		must(err)
		tally.note(seq, false)
	}
	info, err := nc.Request("$SRV.STATS.echo", nil, 10*time.Second)
	must(err)
	var stats micro.Stats
	must(json.Unmarshal(info.Data, &stats))
	if stats.Endpoints[0].NumRequests != tally.Sent {
		tally.Inversions++
	}
}

// restarts: publishes and consumes until the input ends; what was acked must come, in order.
func restarts(_ *nats.Conn, js jetstream.JetStream, tally *Tally) {
	ctx, cancel := background()
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "R", Subjects: []string{"R"}})
	must(err)
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "R", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Second})
	must(err)
	running, err := consumer.Consume(func(msg jetstream.Msg) {
		seq, again := seqOf(msg)
		tally.note(seq, again)
		_ = msg.Ack()
	}, jetstream.PullHeartbeat(500*time.Millisecond), jetstream.PullExpiry(2*time.Second))
	must(err)
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() { _, _ = io.ReadAll(os.Stdin); close(ended) }()
	tally.Sent = 0
	for {
		select {
		case <-ended:
			deadline := time.Now().Add(60 * time.Second)
			for time.Now().Before(deadline) {
				tally.mu.Lock()
				all := len(tally.seen) >= tally.Sent
				tally.mu.Unlock()
				if all {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			running.Stop()
			return
		default:
		}
		id := strconv.Itoa(tally.Sent + 1)
		for {
			short, stop := context.WithTimeout(ctx, time.Second)
			_, err := js.Publish(short, "R", []byte(id), jetstream.WithMsgID(id))
			stop()
			if err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		tally.Sent++
	}
}
