package bolt_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/bolt/internal/layout"
)

var update = flag.Bool("update", false, "write a file of the present format to testdata, if there is none")

// formats has a folder for each format that a release has written: a file and what is in
// it. Nothing in it is changed or deleted, as long as this version opens files of that
// format.
const formats = "testdata/formats"

// described is what a file holds.
type described struct {
	Scopes map[string]scopeOfFormat
	Ledger map[string][]byte
}

type scopeOfFormat struct {
	RV      string
	Objects map[string]string // key -> RV and data
	Red     []string          // keys by a stored index
	Log     []string
}

// TestFormats opens a file of each format, as an earlier version has left it, for reading
// and for writing, and finds all of it: objects, an index, the log, the ledger, and a
// scope that is encrypted.
func TestFormats(t *testing.T) {
	if *update {
		writeFormat(t)
	}
	folders, err := os.ReadDir(formats)
	must(t, err)
	present := false
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			present = present || folder.Name() == formatName()
			b, err := os.ReadFile(filepath.Join(formats, folder.Name(), "want.json"))
			must(t, err)
			var want described
			must(t, json.Unmarshal(b, &want))
			path := filepath.Join(t.TempDir(), "informers.db")
			unpack(t, filepath.Join(formats, folder.Name(), "informers.db.zst"), path)
			reader, err := bolt.OpenReadOnly(path, bolt.Options{Keys: theKey})
			must(t, err)
			compareFormat(t, "read-only", want, contentOfFile(t, reader))
			must(t, reader.Close())
			db, err := bolt.Open(path, bolt.Options{Keys: theKey})
			must(t, err)
			compareFormat(t, "opened", want, contentOfFile(t, db))
			must(t, db.Close())
		})
	}
	if !present {
		t.Errorf("there is no file of the present format, %s: go test ./store/bolt -run TestFormats -update writes one", formatName())
	}
}

// formatName is the folder of the present format.
func formatName() string { return strings.TrimPrefix(layout.Format, layout.FormatPrefix) }

func compareFormat(t *testing.T, how string, want, got described) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", how, diff)
	}
}

// formatScopes are the scopes of the files: one in the clear and one that is encrypted.
var formatScopes = map[string]store.Scope{
	"configmaps": {Cluster: "c", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
	"secrets":    {Cluster: "c", Resource: "secrets", Kind: corev1.SchemeGroupVersion.WithKind("Secret")},
}

func openFormat(t *testing.T, db store.Backend, name string) store.Store {
	t.Helper()
	c, err := codec.For(map[string]runtime.Object{"configmaps": &corev1.ConfigMap{}, "secrets": &corev1.Secret{}}[name])
	must(t, err)
	infos, err := db.Scopes()
	must(t, err)
	for _, i := range infos {
		if i.ID == formatScopes[name].ID() && i.TypeFingerprint != "" {
			c = ofType{c, i.TypeFingerprint} // a newer Kubernetes may have other fields
		}
	}
	s, err := db.Open(formatScopes[name], store.Options{Codec: c, Indexes: []index.Index{index.Namespace(), index.Label("color")}})
	must(t, err)
	return s
}

// ofType is a codec that says it is of another version of the Go type.
type ofType struct {
	codec.Codec
	fingerprint string
}

// Fingerprint implements codec.Codec.
func (c ofType) Fingerprint() string { return c.fingerprint }

// contentOfFile reads all that a file holds.
func contentOfFile(t *testing.T, db *bolt.DB) described {
	t.Helper()
	ledger, err := db.Ledger(t.Context(), "places")
	must(t, err)
	all := described{Scopes: map[string]scopeOfFormat{}, Ledger: ledger}
	for name := range formatScopes {
		s := openFormat(t, db, name)
		d := scopeOfFormat{RV: s.Checkpoint().RV, Objects: map[string]string{}}
		for obj, err := range s.All() {
			must(t, err)
			m := obj.(metav1.Object)
			d.Objects[m.GetNamespace()+"/"+m.GetName()] = fmt.Sprintf("%s of %s: %s", m.GetResourceVersion(), m.GetUID(), contentOf(obj))
		}
		d.Red, err = s.Keys(store.Query{Index: index.Label("color").Name, Values: []string{"red"}})
		must(t, err)
		state, err := s.History()
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		for e, err := range s.Follow(ctx, store.Place{}) {
			if err != nil && ctx.Err() == nil {
				must(t, err)
			}
			switch {
			case e.Mark != nil && e.Mark.Mark == state.Last.Mark:
				d.Log = append(d.Log, "mark at "+e.Mark.RV)
				stop()
			case e.Mark != nil:
				d.Log = append(d.Log, "mark at "+e.Mark.RV)
			case err == nil:
				d.Log = append(d.Log, fmt.Sprintf("%s: %s -> %s at %s", e.Key, rvOf(e.Old), rvOf(e.New), e.RV))
			}
		}
		stop()
		if n := s.(store.Committer).Commits().Rebuilds; n > 0 {
			t.Error("the file was set aside")
		}
		must(t, s.Close())
		all.Scopes[name] = d
	}
	return all
}

func rvOf(v *store.Version) string {
	if v == nil {
		return "none"
	}
	return v.Header.RV
}

func contentOf(obj any) string {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return o.Data["text"]
	case *corev1.Secret:
		return string(o.Data["text"])
	}
	return ""
}

// writeFormat writes a file of the present format, unless there is one.
func writeFormat(t *testing.T) {
	t.Helper()
	dir := filepath.Join(formats, formatName())
	if _, err := os.Stat(dir); err == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{Keys: theKey})
	must(t, err)
	for name := range formatScopes {
		s := openFormat(t, db, name)
		object := func(i, rv int, text string) store.Change {
			m := metav1.ObjectMeta{
				Namespace: fmt.Sprintf("n%d", i%3), Name: fmt.Sprintf("o%02d", i), UID: types.UID(fmt.Sprintf("u%d", i)), ResourceVersion: fmt.Sprint(rv),
				Labels: map[string]string{"color": []string{"red", "blue"}[i%2]},
			}
			if name == "secrets" {
				return store.Change{Object: &corev1.Secret{ObjectMeta: m, Data: map[string][]byte{"text": []byte(text)}}}
			}
			return store.Change{Object: &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"text": text}}}
		}
		r, err := s.Relist()
		must(t, err)
		for i := range 30 {
			must(t, r.Add(object(i, i+1, strings.Repeat(fmt.Sprintf("text %d ", i), 20)).Object))
		}
		for b, err := range r.Parts("100") {
			must(t, err)
			must(t, s.Apply(b))
		}
		must(t, r.Close())
		must(t, s.Flush(t.Context()))
		must(t, s.Apply(store.Batch{RV: "103", Changes: []store.Change{object(1, 101, "changed"), object(40, 102, "new"), {Key: "n2/o02", RV: "103"}}}))
		must(t, s.Flush(t.Context()))
		must(t, s.Apply(store.Batch{RV: "104", Changes: []store.Change{object(1, 104, "changed again")}}))
		must(t, s.Close())
	}
	must(t, db.SetLedger(t.Context(), "places", map[string][]byte{"one": []byte("1"), "two": {0, 1, 2}}))
	want, err := json.MarshalIndent(contentOfFile(t, db), "", "\t")
	must(t, err)
	must(t, db.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.MkdirAll(dir, 0o755))
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "informers.db.zst"), w.EncodeAll(b, nil), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "want.json"), append(want, '\n'), 0o644))
}

func unpack(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must(t, err)
	r, err := zstd.NewReader(nil)
	must(t, err)
	defer r.Close()
	b, err = r.DecodeAll(b, nil)
	must(t, err)
	must(t, os.WriteFile(to, b, 0o600))
}
