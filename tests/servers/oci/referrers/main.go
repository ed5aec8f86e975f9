// A registry in memory that lists what refers to a manifest (`/v2/<name>/referrers/<digest>`), which that of distribution
// does not. Plain HTTP on loopback; the argument is the port.
package main

import (
	"log"
	"net/http"
	"os"

	"cuelabs.dev/go/oci/ociregistry/ocimem"
	"cuelabs.dev/go/oci/ociregistry/ociserver"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: referrers PORT")
	}
	handler := ociserver.New(ocimem.New(), nil)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], handler))
}
