package bolt_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// With a key, Secrets are stored, and they are encrypted.
func ExampleOptions_keys() {
	dir, err := os.MkdirTemp("", "informctl")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	key := filepath.Join(dir, "key") // in the format of "openssl rand -hex 32"
	if err := os.WriteFile(key, []byte(strings.Repeat("e7", 32)), 0o600); err != nil {
		log.Panic(err)
	}
	db, err := bolt.Open(filepath.Join(dir, "informers.db"), bolt.Options{Keys: codec.KeyFile(key)})
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = db.Close() }()
	for _, name := range []string{"Secret", "Pod"} { // as an informer does
		kind := corev1.SchemeGroupVersion.WithKind(name)
		if _, err := db.Open(store.Scope{Resource: strings.ToLower(name) + "s", Kind: kind}, store.Options{}); err != nil {
			log.Panic(err)
		}
	}
	infos, err := db.Scopes()
	if err != nil {
		log.Panic(err)
	}
	for _, info := range infos {
		fmt.Println(info.Scope, "encrypted:", info.Encrypted)
	}
	// Output:
	// pods encrypted: false
	// secrets encrypted: true
}
