package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"

	"github.com/informctl/informctl/internal/testobjects"
)

// content is what is compared of an object: its UID, its resource version and the hash of
// its JSON.
type content struct {
	uid, rv string
	hash    [sha256.Size]byte
}

// contents holds the content of each object in a collection, by namespace and name.
type contents map[string]content

func (c contents) add(obj *unstructured.Unstructured) error {
	// The encoder sorts keys, so two objects with the same values have the same hash.
	data, err := json.Marshal(obj.Object)
	if err != nil {
		return fmt.Errorf("encode %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	key := obj.GetNamespace() + "/" + obj.GetName()
	if _, there := c[key]; there {
		return fmt.Errorf("%s %s is there twice", obj.GetKind(), key)
	}
	c[key] = content{string(obj.GetUID()), obj.GetResourceVersion(), sha256.Sum256(data)}
	return nil
}

// differs returns an error that names an object that differs between the file and the
// server, or nil if there is none.
func (c contents) differs(server contents) error {
	for key, want := range server {
		got, there := c[key]
		switch {
		case !there:
			return fmt.Errorf("%s is on the server but not in the file", key)
		case got.uid != want.uid || got.rv != want.rv:
			return fmt.Errorf("%s has UID %s and resource version %s in the file, %s and %s on the server", key, got.uid, got.rv, want.uid, want.rv)
		case got != want:
			return fmt.Errorf("%s is another in the file than on the server, at the same resource version %s", key, got.rv)
		}
	}
	for key := range c {
		if _, there := server[key]; !there {
			return fmt.Errorf("%s is in the file but not on the server", key)
		}
	}
	return nil
}

// compare returns an error unless the file and the server have the same objects.
func (d *demo) compare(ctx context.Context) (string, error) {
	cfg := d.cp.Config()
	cfg.DisableCompression = true
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("make a client: %w", err)
	}
	d.equal = map[string]int{}
	for _, r := range []schema.GroupVersionResource{podResource, testobjects.WidgetResource} {
		var server, file contents
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() (err error) {
			if server, err = serverContents(ctx, client, r); err != nil {
				return fmt.Errorf("list %s: %w", r.Resource, err)
			}
			return nil
		})
		both.Go(func() (err error) {
			if file, err = d.informctl.contents(ctx, r.Resource); err != nil {
				return fmt.Errorf("informctl dump %s: %w", r.Resource, err)
			}
			return nil
		})
		if err := both.Wait(); err != nil {
			return "", err
		}
		if err := file.differs(server); err != nil {
			return "", fmt.Errorf("%s: %w", r.Resource, err)
		}
		d.equal[r.Resource] = len(server)
	}
	return "equal", nil
}

func serverContents(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource) (contents, error) {
	c := contents{}
	for opts := (metav1.ListOptions{Limit: 500}); ; {
		page, err := client.Resource(r).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if err := c.add(&page.Items[i]); err != nil {
				return nil, err
			}
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return c, nil
		}
	}
}

// contents decodes a dump while the command prints it, because the dump is long.
func (c *informctl) contents(ctx context.Context, resource string) (contents, error) {
	cmd := c.command(ctx, "dump", resource, "--db", file, "-o", "json", "--show-managed-fields")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	all, err := decodeList(stdout)
	// If the reader stopped early, the command would end with success.
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	return all, err
}

// decodeList reads a List to its end, one item at a time.
func decodeList(r io.Reader) (contents, error) {
	decoder := json.NewDecoder(r)
	c := contents{}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		if key != "items" {
			if err := decoder.Decode(&json.RawMessage{}); err != nil {
				return nil, err
			}
			continue
		}
		if err := c.addItems(decoder); err != nil {
			return nil, err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one List")
	}
	return c, nil
}

// addItems reads an array of objects.
func (c contents) addItems(decoder *json.Decoder) error {
	if _, err := decoder.Token(); err != nil {
		return err
	}
	var data json.RawMessage
	for decoder.More() {
		if err := decoder.Decode(&data); err != nil {
			return err
		}
		// This decoder is the one that decodes the server's answers, so numbers are
		// encoded alike.
		obj := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(data, &obj.Object); err != nil {
			return err
		}
		if err := c.add(obj); err != nil {
			return err
		}
	}
	_, err := decoder.Token()
	return err
}
