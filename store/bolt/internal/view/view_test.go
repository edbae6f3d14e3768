package view_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/objcodec"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

// unwritten returns a Snapshot of a scope that has nothing in the file: n/0 to n/9, of
// which the odd ones are red, n/5 is deleted, and an object with a long name.
func unwritten(t *testing.T) (*view.Snapshot, *objcache.Cache) {
	t.Helper()
	cache, err := objcache.New(store.Options{DecodedBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fail := func(where string, err error) error { return fmt.Errorf("%s: %w", where, err) }
	sn := &view.Snapshot{Overlay: overlay.NewView(), Codec: &objcodec.Codec{Corrupt: fail, Unreadable: fail}}
	put := func(name string, color string) {
		e := &overlay.Entry{Key: record.FileKey(name), Name: name}
		if color != "" {
			e.Head = &record.Header{Hash: []byte(name), Labels: map[string]string{"color": color}, Index: map[string][]string{"color": {color}}}
			e.Payload.Bytes = []byte(name)
			sn.Length++
		}
		sn.Overlay.Put(e)
	}
	for i := range 10 {
		color := "blue"
		if i%2 == 1 {
			color = "red"
		}
		if i == 5 {
			color = ""
		}
		put(fmt.Sprintf("n/%d", i), color)
	}
	put("n/"+longName, "red")
	return sn, cache
}

var longName = string(slices.Repeat([]byte("x"), 5000))

func keysOf(entries []store.Entry) []string {
	keys := make([]string, len(entries))
	for i, e := range entries {
		if keys[i] = e.Key; len(e.Key) > 100 {
			keys[i] = "long"
		}
	}
	return keys
}

func TestPicker(t *testing.T) {
	red := labels.SelectorFromSet(labels.Set{"color": "red"})
	for name, tc := range map[string]struct {
		query store.Query
		want  []string
		all   bool // SelectsAll
	}{
		"all":               {store.Query{}, []string{"n/0", "n/1", "n/2", "n/3", "n/4", "n/6", "n/7", "n/8", "n/9", "long"}, true},
		"by label":          {store.Query{Selector: red}, []string{"n/1", "n/3", "n/7", "n/9", "long"}, false},
		"after a key":       {store.Query{Selector: red, After: "n/3"}, []string{"n/7", "n/9", "long"}, false},
		"limit":             {store.Query{After: "n/3", Limit: 2}, []string{"n/4", "n/6"}, false},
		"other namespace":   {store.Query{Namespace: "m"}, nil, false},
		"keys":              {store.Query{Keys: []string{"n/8", "n/5", "n/1", "n/8", "m/1"}}, []string{"n/1", "n/8"}, true},
		"by index":          {store.Query{Index: "color", Values: []string{"red"}}, []string{"n/1", "n/3", "n/7", "n/9", "long"}, true},
		"index and keys":    {store.Query{Index: "color", Values: []string{"red"}, Keys: []string{"n/2", "n/7"}}, []string{"n/7"}, true},
		"index and after":   {store.Query{Index: "color", Values: []string{"red"}, After: "n/7"}, []string{"n/9", "long"}, false},
		"nothing can match": {store.Query{Selector: labels.Nothing()}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			sn, cache := unwritten(t)
			var find view.Finder
			if tc.query.Index != "" {
				find = func(sn *view.Snapshot) ([]string, error) { return sn.IndexKeys("color", "red", "red"), nil }
			}
			p := view.NewPicker(tc.query, cache, find)
			if p.SelectsAll() != tc.all {
				t.Errorf("SelectsAll = %v", !tc.all)
			}
			if err := p.Select(sn); err != nil {
				t.Fatal(err)
			}
			if got := keysOf(p.Entries); !slices.Equal(got, tc.want) {
				t.Errorf("Select finds %v, want %v", got, tc.want)
			}
			for i, e := range p.Entries {
				_, _, payload, err := record.ParseRaw(e.Raw)
				if err != nil || string(payload) != e.Key || string(p.Hashes[i]) != e.Key {
					t.Errorf("%.20s has payload %.20q and hash %.20q, %v", e.Key, payload, p.Hashes[i], err)
				}
			}
			keys, err := view.NewPicker(tc.query, cache, find).Keys(sn)
			if err != nil || !slices.Equal(keysOf(entriesOf(keys)), tc.want) {
				t.Errorf("Keys finds %v, %v, want %v", keys, err, tc.want)
			}
		})
	}
}

func entriesOf(keys []string) []store.Entry {
	entries := make([]store.Entry, len(keys))
	for i, key := range keys {
		entries[i].Key = key
	}
	return entries
}

// TestFinderFails returns the error of an index instead of a part of the answer.
func TestFinderFails(t *testing.T) {
	sn, cache := unwritten(t)
	gone := errors.New("index is gone")
	p := view.NewPicker(store.Query{Index: "color"}, cache, func(*view.Snapshot) ([]string, error) { return []string{"n/1"}, gone })
	if err := p.Select(sn); !errors.Is(err, gone) {
		t.Errorf("Select: %v", err)
	}
}

func TestSnapshot(t *testing.T) {
	sn, _ := unwritten(t)
	if !sn.Exists("n/1") || sn.Exists("n/5") || sn.Exists("m/1") {
		t.Error("Exists does not follow what is not written")
	}
	if _, ok, err := sn.Raw("n/5"); ok || err != nil {
		t.Errorf("a deleted object is found: %v", err)
	}
	if values, err := sn.IndexValues("color"); err != nil || !slices.Equal(values, []string{"blue", "red"}) {
		t.Errorf("IndexValues = %v, %v", values, err)
	}
	var all []string
	for after := ""; ; {
		entries, err := sn.Scan(after, 3)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, keysOf(entries)...)
		if len(entries) < 3 {
			break
		}
		after = entries[len(entries)-1].Key
	}
	if len(all) != sn.Length || !slices.Contains(all, "long") {
		t.Errorf("Scan finds %v", all)
	}
	keys, err := sn.Keys("n/6", 2)
	if err != nil || !slices.Equal(keys, []string{"n/7", "n/8"}) {
		t.Errorf("Keys = %v, %v", keys, err)
	}
	if h, err := sn.Header("n/1"); err != nil || h.Labels["color"] != "red" || string(sn.Hash("n/1")) != "n/1" {
		t.Errorf("Header = %v, %v", h, err)
	}
}
