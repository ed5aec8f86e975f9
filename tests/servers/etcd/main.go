// etcd as its own project starts it, built from this module so that go.sum pins every byte.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
