// Command hosted-sidecar stands beside a hosted control plane in a Pod, and is its only way to and from the network.
//
//	clients ──TLS of the API server──► API ──► 127.0.0.1, unchanged
//	hosted ──Unix socket──► SOCKETS/NAME.sock ──► a connection that the operator has parked ──► operator
//
// The operator connects to TUNNEL, and both prove who they are by certificates of an authority that this Pod alone has.
// It then names a socket, and the connection is parked. A process that connects to the socket gets a parked connection:
// one byte informs the operator, and all further bytes are passed on. So the Pod opens no connection of its own, and
// needs no egress. Without a parked connection, a process waits for a moment and is then rejected.
//
// A socket of the process itself is reached the other way round: a connection that names it is connected to it at once.
//
// It also keeps snapshots, which the operator requests at KEEPER in the same way; see keeper.go. Without an address for
// clients, it does nothing else: such a program is alone in a Pod, and ends when the operator has been silent for IDLE.
// In a container of its own, it prints the audit log of the API server instead; see audit.go.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	api := flag.String("api", ":6443", "address at which clients reach the API server")
	server := flag.String("server", "127.0.0.1:6444", "address of the API server in this Pod")
	tunnel := flag.String("tunnel", ":6445", "address at which the operator parks connections")
	keys := flag.String("keys", "/keys", "folder with ca.crt, tls.crt and tls.key")
	folder := flag.String("sockets", "/sockets", "folder of the Unix sockets")
	names := flag.String("names", "gate,admission", "names of the Unix sockets, without .sock")
	reached := flag.String("reached", "", "names of Unix sockets of the process that the operator connects to; none by default")
	wait := flag.Duration("wait", 10*time.Second, "time that a process waits for the operator")
	audit := flag.String("audit", "", "audit log that is printed as it grows, and nothing else is done; none by default")
	keeping := flag.String("keeper", "", "address at which the operator requests snapshots; none by default")
	var own keeper
	flag.StringVar(&own.volume, "volume", "", "folder of the volume in which snapshots are kept")
	flag.StringVar(&own.folder, "folder", ".", "folder in the volume")
	flag.StringVar(&own.program, "program", "", "program of the control plane, which verifies snapshots; none by default")
	flag.StringVar(&own.settings, "settings", "", "its settings, for snapshots and restores; none by default")
	flag.StringVar(&own.database, "database", "state.db", "its database in the volume")
	flag.Uint64Var(&own.reserve, "reserve", 0, "bytes of the volume that snapshots leave free")
	idle := flag.Duration("idle", 0, "time without a request after which a keeper ends; 0 for never")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *audit != "" {
		exit(follow(ctx, *audit, os.Stdout))
		return
	}
	failed := make(chan error, 1)
	err := keep(ctx, stop, *keeping, *keys, &own, *idle, failed)
	if err == nil && *api != "" {
		way := sockets{folder: *folder, served: strings.Split(*names, ","), reached: strings.Split(*reached, ",")}
		err = run(ctx, *api, *server, *tunnel, *keys, way, *wait, failed)
	} else if err == nil {
		log.Print("ready")
		err = ended(ctx, failed)
	}
	exit(err)
}

// exit ends the program if it has failed.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosted-sidecar:", err)
		os.Exit(1)
	}
}

// keep serves snapshots if there is an address for that.
func keep(
	ctx context.Context, stop func(), at, keys string, own *keeper, idle time.Duration, failed chan<- error,
) error {
	if at == "" {
		return nil
	}
	identity, err := identityOf(keys)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	go func() { failed <- own.serve(listener, identity) }()
	if idle > 0 {
		go func() {
			own.idle(ctx, idle)
			stop()
		}()
	}
	return nil
}

// sockets are the Unix sockets of a Pod, by their names without .sock.
type sockets struct {
	folder string
	// Those that the process connects to, and those at which it listens itself.
	served, reached []string
}

func (s sockets) path(name string) string { return filepath.Join(s.folder, name+".sock") }

func run(
	ctx context.Context, api, server, tunnel, keys string, way sockets, wait time.Duration, other <-chan error,
) error {
	identity, err := identityOf(keys)
	if err != nil {
		return err
	}
	clients, err := net.Listen("tcp", api)
	if err != nil {
		return err
	}
	defer clients.Close()
	operators, err := net.Listen("tcp", tunnel)
	if err != nil {
		return err
	}
	defer operators.Close()
	failed := make(chan error, len(way.served)+3)
	pools, reached := map[string]*pool{}, map[string]string{}
	for _, name := range way.reached {
		if name != "" {
			reached[name] = way.path(name)
		}
	}
	for _, name := range way.served {
		pools[name] = newPool(wait)
	}
	// From here on, goroutines read the map: it does not change any more.
	for name, own := range pools {
		listener, err := listen(way.path(name))
		if err != nil {
			return err
		}
		defer listener.Close()
		go func() { failed <- serve(listener, mostOpen, own.handOver) }()
	}
	go func() { failed <- serve(clients, mostOpen, func(client net.Conn) { pass(client, server) }) }()
	parker := func(operator net.Conn) { park(tls.Server(operator, identity), pools, reached) }
	go func() { failed <- serve(operators, mostOpen, parker) }()
	go func() { failed <- <-other }()
	log.Print("ready")
	return ended(ctx, failed)
}

// ended returns the first error, nil if the program is to end.
func ended(ctx context.Context, failed <-chan error) error {
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
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

// listen replaces the socket that an earlier container of the Pod has left.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
