// Command endpoint-proxy accepts the connections to the hosted control planes of one cluster.
//
//	endpoint-proxy FOLDER
//	endpoint-proxy pods ADDRESS PROBE KEYS
//	endpoint-proxy datastore SOCKET HOST:PORT [CIDR]...
//
// FOLDER is the cluster's. The program serves the control planes whose hosted/UID/process.json or stopped.json names an
// internal port:
//
//	client ─► 127.0.0.1:port ─► 127.0.0.1:internal, the process     bytes, while the process is ready
//	                 └────────► held; waiters at hosted/knock.sock learn of it; 503 after a while
//	                 └────────► 503 while hosted/UID/closed exists: suspended, or its objects move out
//	control.sock ─► the phase of each process                       one line for each change
//
// The second form is for control planes in Pods. Operators connect to ADDRESS, with a certificate of the authority in KEYS
// (ca.crt, tls.crt, tls.key), and report each control plane: its port, its Pods, whether it sleeps, whether it is
// closed. See control.go. The program opens no other connections than to these Pods, and keeps the last reports while no
// operator is connected; when it starts, it knows nothing, and listens nowhere.
//
// The third form, a process of its own for each control plane that needs one, connects each client of a Unix socket to one
// datastore. It resolves the name at each connection, and refuses addresses of this machine, its link and metadata services,
// except those in a CIDR.
//
// It ends with SIGTERM, and all connections with it.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	isDatastore := len(os.Args) > 3 && os.Args[1] == "datastore"
	isPods := len(os.Args) == 5 && os.Args[1] == "pods"
	if len(os.Args) != 2 && !isDatastore && !isPods {
		fmt.Fprintln(os.Stderr, "usage: endpoint-proxy FOLDER | pods ADDRESS PROBE KEYS | datastore SOCKET HOST:PORT [CIDR]...")
		os.Exit(2)
	}
	log.SetFlags(log.LstdFlags | log.LUTC)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if isDatastore {
		err = datastore(ctx, os.Args[2], os.Args[3], os.Args[4:])
	} else if isPods {
		err = runPods(ctx, os.Args[2], os.Args[3], os.Args[4])
	} else if err = os.Chdir(os.Args[1]); err == nil {
		// The names of sockets are relative: paths of Unix sockets are short.
		err = run(ctx, ".", tellReady)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "endpoint-proxy:", err)
		os.Exit(1)
	}
}

func datastore(ctx context.Context, socket, address string, allowed []string) error {
	rule, err := newDatastoreRule(address, allowed)
	if err != nil {
		return err
	}
	return forwardDatastore(ctx, socket, rule, tellReady)
}

// run serves the control planes of a cluster until the context ends. It calls ready once it listens at the ports of the
// control planes that were there at the start.
func run(ctx context.Context, at folder, ready func()) error {
	all := newPlanes(at, listenHere)
	defer all.close()
	knocks, err := listenForWaiters(string(at), all)
	if err != nil {
		return err
	}
	defer knocks.Close()
	return follow(ctx, string(at), func(states []component) {
		all.apply(at, states)
		if ready != nil {
			ready()
			ready = nil
		}
	})
}

// tellReady reports to the supervisor that this process is ready: sd_notify(3).
func tellReady() {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:]
	}
	connection, err := net.Dial("unixgram", name)
	if err != nil {
		log.Print("the supervisor cannot be notified: ", err)
		return
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("READY=1")); err != nil {
		log.Print("the supervisor cannot be notified: ", err)
	}
}
