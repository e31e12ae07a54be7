package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

const (
	// handshakeRecord begins every TLS connection (RFC 8446, 5.1: the type of a record, 22).
	handshakeRecord = 22
	// clientHello is the type of the first message in it (RFC 8446, 4).
	clientHello = 1
	// maxHello bounds the ClientHello; those of programs have a few kilobytes.
	maxHello = 32 << 10
	// maxRecords bounds its records. Programs use one, or three for the largest; TLS allows one for each byte.
	maxRecords = 8
	// helloTime is how long a client may take for it.
	helloTime = 10 * time.Second
)

var errNoHello = errors.New("the connection begins with no ClientHello of TLS")

// readHello reads until the ClientHello of a client is whole, and perhaps more. Nothing is lost: serve sends it first.
func readHello(client *net.TCPConn, within time.Duration) ([]byte, error) {
	if err := client.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	var got []byte
	buffer := make([]byte, 2<<10)
	for {
		n, err := client.Read(buffer)
		got = append(got, buffer[:n]...)
		isWhole, wrong := isHello(got)
		if isWhole && wrong == nil {
			return got, client.SetReadDeadline(time.Time{})
		}
		if err = errors.Join(wrong, err); err != nil {
			return nil, err
		}
	}
}

// isHello returns whether a ClientHello is whole, or an error as soon as it cannot become one. It may be in several
// records.
//
// readHello calls it after each read, of one byte perhaps: it looks at the heads of at most maxRecords, and copies nothing
// else.
func isHello(got []byte) (bool, error) {
	// The first bytes of the message, and how many of it have come.
	var head [4]byte
	many := 0
	records := 0
	for rest := got; len(rest) > 0; records++ {
		if records == maxRecords || rest[0] != handshakeRecord || (len(rest) > 1 && rest[1] != 3) {
			return false, errNoHello
		}
		if len(rest) < 5 {
			return false, nil
		}
		length := int(rest[3])<<8 | int(rest[4])
		if length == 0 || length > 16<<10 {
			return false, errNoHello
		}
		rest = rest[5:]
		body := rest[:min(length, len(rest))]
		copy(head[min(many, len(head)):], body)
		many += len(body)
		if many > 0 && head[0] != clientHello {
			return false, errNoHello
		}
		if many >= len(head) {
			size := int(head[1])<<16 | int(head[2])<<8 | int(head[3])
			if size > maxHello {
				return false, errNoHello
			}
			if many >= len(head)+size {
				return true, parse(got)
			}
		}
		if len(rest) < length {
			return false, nil
		}
		rest = rest[length:]
	}
	return false, nil
}

// parse returns an error unless TLS understands a ClientHello.
func parse(hello []byte) error {
	isRead := false
	settings := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		isRead = true
		return nil, errNoHello
	}}
	_ = tls.Server(&readOnly{from: bytes.NewReader(hello)}, settings).Handshake()
	if !isRead {
		return errNoHello
	}
	return nil
}

// readOnly is a connection that has received some bytes, and whose answers are lost.
type readOnly struct {
	net.Conn
	from *bytes.Reader
}

func (r *readOnly) Read(to []byte) (int, error)      { return r.from.Read(to) }
func (r *readOnly) Write(what []byte) (int, error)   { return len(what), nil }
func (r *readOnly) SetWriteDeadline(time.Time) error { return nil }
func (r *readOnly) Close() error                     { return nil }
