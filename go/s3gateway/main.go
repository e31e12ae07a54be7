// Command s3gateway is an S3-compatible server whose buckets are folders, for tests.
//
//	ROOT_ACCESS_KEY_ID=… ROOT_SECRET_ACCESS_KEY=… s3gateway [--readonly] ADDRESS BUCKETS ATTRIBUTES CERTIFICATE KEY
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	readonly := flag.Bool("readonly", false, "Refuse all requests that write.")
	flag.Parse()
	if flag.NArg() != 5 {
		fmt.Fprintln(os.Stderr, "usage: s3gateway [--readonly] ADDRESS BUCKETS ATTRIBUTES CERTIFICATE KEY")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go announce(ctx, flag.Arg(0))
	if err := serve(ctx, *readonly, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "s3gateway:", err)
		os.Exit(1)
	}
}

// announce writes a line, for which the caller waits, once the server accepts connections.
func announce(ctx context.Context, address string) {
	for ctx.Err() == nil {
		if connection, err := net.Dial("tcp", address); err == nil {
			connection.Close()
			fmt.Println("serving")
			return
		}
		// The library has no event for it.
		time.Sleep(20 * time.Millisecond)
	}
}

func serve(ctx context.Context, readonly bool, arguments []string) error {
	// Not all file systems have attributes of users.
	attributes, err := meta.NewSideCar(arguments[2])
	if err != nil {
		return err
	}
	store, err := posix.New(arguments[1], attributes, posix.PosixOpts{SideCarDir: arguments[2]})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY_ID"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_ACCESS_KEY"),
		Region:            "us-east-1",
		Ports:             []string{arguments[0]},
		MaxConnections:    64,
		MaxRequests:       64,
		MultipartMaxParts: 10000,
		CertFile:          arguments[3],
		KeyFile:           arguments[4],
		Readonly:          readonly,
		Quiet:             true,
	})
}
