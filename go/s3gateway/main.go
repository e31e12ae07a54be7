// Command s3gateway is an S3-compatible server whose buckets are folders, for tests.
//
//	ROOT_ACCESS_KEY_ID=… ROOT_SECRET_ACCESS_KEY=… s3gateway ADDRESS FOLDER CERTIFICATE KEY
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: s3gateway ADDRESS FOLDER CERTIFICATE KEY")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "s3gateway:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, address, folder, certificate, key string) error {
	store, err := posix.New(folder, meta.XattrMeta{}, posix.PosixOpts{})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY_ID"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_ACCESS_KEY"),
		Region:            "us-east-1",
		Ports:             []string{address},
		MaxConnections:    64,
		MaxRequests:       64,
		MultipartMaxParts: 10000,
		CertFile:          certificate,
		KeyFile:           key,
		KeepAlive:         true,
		Quiet:             true,
	})
}
