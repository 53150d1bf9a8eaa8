// forget removes every container, sandbox and lease from containerd's metadata and keeps its images, so that a node's image store outlives
// a cluster whose processes were killed. containerd must not be running; it collects the orphaned snapshots when it starts.
package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: forget META.DB")
		os.Exit(2)
	}
	if err := forget(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "forget:", err)
		os.Exit(1)
	}
}

func forget(path string) error {
	store, err := bbolt.Open(path, 0o644, &bbolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Update(func(tx *bbolt.Tx) error {
		schema := tx.Bucket([]byte("v1"))
		if schema == nil {
			return nil
		}
		return schema.ForEachBucket(func(namespace []byte) error {
			objects := schema.Bucket(bytes.Clone(namespace))
			for _, kind := range []string{"containers", "sandboxes", "leases"} {
				if objects.Bucket([]byte(kind)) == nil {
					continue
				}
				if err := objects.DeleteBucket([]byte(kind)); err != nil {
					return fmt.Errorf("%s/%s: %w", namespace, kind, err)
				}
			}
			return nil
		})
	})
}
