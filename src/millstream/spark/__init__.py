"""PySpark over the streams; imports the client and the kernel, never the server."""
