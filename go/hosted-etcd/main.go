// Command hosted-etcd is the server of etcd alone. The image of hosted control planes has it, because the program of
// local control planes has all of Kubernetes beside it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
