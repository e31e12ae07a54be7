package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// What an operator asks for besides a waiter of the socket.
const (
	// untilTold: a report of a control plane is taken over.
	untilTold = "told"
	// untilGone: a control plane that is deleted is not listened for any more.
	untilGone = "gone"
	// untilReady: this operator has reported all that it knows; from then on, the Pod may get clients.
	untilReady = "ready"
	// untilWithdrawn: the operator does not wait for the answer of this number any more.
	untilWithdrawn = "withdrawn"
)

const (
	// maxOperators is how many operators are connected at most; each replica is once.
	maxOperators = 64
	// maxMessage bounds the line of an operator, which has a certificate and a key.
	maxMessage = 256 << 10
)

// message is a line of an operator, and outcome the answer of the same number.
type message struct {
	ID uint64 `json:"id"`
	question
	Plane *toldPlane `json:"plane"`
}

type outcome struct {
	ID uint64 `json:"id"`
	verdict
}

// control serves the operators of a cluster whose control planes are Pods.
type control struct {
	all  *planes
	told *told
	// The folder with ca.crt, tls.crt and tls.key.
	keys string
	// Called when an operator has reported all that it knows.
	ready func()
}

// serve accepts operators until the listener is closed.
func (c *control) serve(listener net.Listener) error {
	slots := make(chan struct{}, maxOperators)
	return acceptAll("operators", listener.Accept, func(connection net.Conn) {
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				defer connection.Close()
				c.greet(connection)
			}()
		default:
			connection.Close()
		}
	})
}

// greet completes TLS with an operator, whose certificate is of the authority of this proxy alone, and serves it.
func (c *control) greet(connection net.Conn) {
	// Read each time: they are renewed while this process runs.
	identity, err := identityOf(c.keys)
	if err != nil {
		log.Print("the keys cannot be read: ", err)
		return
	}
	secured := tls.Server(connection, identity)
	_ = secured.SetDeadline(time.Now().Add(askTime))
	if err := secured.Handshake(); err != nil {
		return
	}
	_ = secured.SetDeadline(time.Time{})
	log.Print("an operator is connected from ", connection.RemoteAddr())
	operator := &operator{control: c, connection: secured, waiting: map[uint64]context.CancelFunc{}}
	operator.serve()
	log.Print("an operator is gone from ", connection.RemoteAddr())
}

// operator is one operator that is connected.
type operator struct {
	*control
	connection net.Conn

	mu sync.Mutex
	// By the numbers of questions that are not answered yet: what ends the waiting.
	waiting map[uint64]context.CancelFunc
}

// serve answers the lines of an operator to its end. What it has reported stays.
func (o *operator) serve() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	lines := bufio.NewScanner(o.connection)
	lines.Buffer(make([]byte, 0, 4<<10), maxMessage)
	for lines.Scan() {
		var got message
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			log.Print("an operator of another version: ", err)
			return
		}
		switch got.Until {
		case untilTold:
			err := errors.New("there is no plane")
			if got.Plane != nil {
				err = o.told.tell(o.all, *got.Plane)
			}
			o.answer(got.ID, err)
		case untilGone:
			o.told.forget(o.all, got.UID)
			o.answer(got.ID, nil)
		case untilReady:
			o.control.ready()
			o.answer(got.ID, nil)
		case untilClient:
			o.wait(ctx, got)
		case untilWithdrawn:
			o.withdraw(got.ID)
		default:
			o.answer(got.ID, errors.New("the question is not known"))
		}
	}
}

// wait answers when a client is held.
func (o *operator) wait(ctx context.Context, asked message) {
	who := &waiter{what: asked.Until, done: make(chan struct{})}
	if err := o.all.await(asked.UID, who); err != nil {
		o.answer(asked.ID, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	o.mu.Lock()
	o.waiting[asked.ID] = cancel
	o.mu.Unlock()
	go func() {
		defer o.withdraw(asked.ID)
		defer o.all.forget(asked.UID, who)
		select {
		case <-who.done:
			o.answer(asked.ID, nil)
		case <-ctx.Done():
		}
	}()
}

func (o *operator) withdraw(id uint64) {
	o.mu.Lock()
	cancel := o.waiting[id]
	delete(o.waiting, id)
	o.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (o *operator) answer(id uint64, err error) {
	what := outcome{ID: id}
	if err != nil {
		what.Error = err.Error()
	}
	content, err := json.Marshal(what)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.connection.SetWriteDeadline(time.Now().Add(askTime))
	if _, err := o.connection.Write(append(content, '\n')); err != nil {
		o.connection.Close()
	}
}

func identityOf(folder string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt has no certificate")
	}
	return &tls.Config{
		Certificates:           []tls.Certificate{pair},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              pool,
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
	}, nil
}

// runPods serves control planes whose processes are Pods, until the context ends. It listens for them at the host of the
// address at which operators connect.
//
// The probe's address accepts connections once an operator has reported all that it knows: until then, Services lead to
// another Pod, or nowhere.
func runPods(ctx context.Context, at, probe, keys string) error {
	if _, err := identityOf(keys); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	defer listener.Close()
	known := newTold()
	all := newPlanes(known, func(port int) (*net.TCPListener, error) {
		return net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(host), Port: port})
	})
	defer all.close()
	serving := &control{all: all, told: known, keys: keys, ready: sync.OnceFunc(func() { acceptProbes(probe) })}
	log.Print("waiting for operators at ", listener.Addr())
	return serving.serve(listener)
}

// acceptProbes answers the probe of kubelet, which only connects.
func acceptProbes(at string) {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		log.Print("the probe cannot be answered: ", err)
		return
	}
	go func() {
		_ = acceptAll("the probe", listener.Accept, func(connection net.Conn) { _ = connection.Close() })
	}()
}
