package mem_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
	"github.com/informctl/informctl/store/storetest"
)

func config() storetest.Config {
	return storetest.Config{Open: func(*testing.T, string) store.Backend { return mem.New() }}
}

func TestSuite(t *testing.T) { storetest.Run(t, config()) }

func TestModel(t *testing.T) { storetest.RunModel(t, config()) }

// TestListRefusedByNewIndex checks that a first list of which an index that was added
// meanwhile refuses an object is not taken for applied, and can be applied without it.
func TestListRefusedByNewIndex(t *testing.T) {
	s := open(t)
	list := must(s.Relist())
	defer func() { _ = list.Close() }()
	for _, name := range []string{"bad", "fine"} {
		if err := list.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}); err != nil {
			t.Fatal(err)
		}
	}
	fails := true
	err := s.AddIndexes(cache.Indexers{"fails": func(obj any) ([]string, error) {
		if fails && obj.(*corev1.ConfigMap).Name == "bad" {
			return nil, errors.New("malformed")
		}
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	apply := func() (err error) {
		for b, partErr := range list.Parts("5") {
			if err = partErr; err == nil {
				_ = s.Apply(b)
				err = s.Apply(b)
			}
			if err != nil {
				break
			}
		}
		return err
	}
	if err, want := apply(), (*store.ObjectError)(nil); !errors.As(err, &want) || s.Len() != 0 {
		t.Errorf("%d objects, %v, want an ObjectError", s.Len(), err)
	}
	if fails = false; apply() != nil || s.Len() != 2 || s.Checkpoint().RV != "5" {
		t.Errorf("%d objects at %+v", s.Len(), s.Checkpoint())
	}
}

// TestLogBesideWriter follows a scope from a moment in which it is written: who reads the
// objects where the log begins, and follows it, has the last state, and each mark is of
// the state that is read at it.
func TestLogBesideWriter(t *testing.T) {
	object := func(rv int) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: strconv.Itoa(rv)}}
	}
	rvAt := func(s store.Store, at store.Place) (rv string) {
		for _, obj := range must(s.Objects(store.Query{At: at})) {
			rv = obj.(*corev1.ConfigMap).ResourceVersion
		}
		return rv
	}
	const last = 300
	for range 20 {
		s := open(t)
		var writing sync.WaitGroup
		write := func(rv int) {
			if err := s.Apply(store.Batch{RV: strconv.Itoa(rv), Changes: []store.Change{{Object: object(rv)}}}); err != nil {
				t.Error(err)
			}
		}
		write(1)
		writing.Go(func() {
			for rv := 2; rv <= last; rv++ {
				write(rv)
			}
		})
		known := ""
		for e, err := range s.Follow(t.Context(), store.Place{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Mark == nil {
				known = e.RV
				continue
			}
			if e.Mark.Begins {
				known = rvAt(s, store.Place{})
			} else if at := rvAt(s, e.Mark.Place); at != e.Mark.RV {
				t.Errorf("at %s, %s is read", e.Mark.RV, at)
			}
			if state := must(s.History()); state.Last.RV != "" {
				if at := rvAt(s, state.Last); at != state.Last.RV {
					t.Errorf("at %s, the last one, %s is read", state.Last.RV, at)
				}
			}
			if e.Mark.RV == strconv.Itoa(last) {
				break
			}
		}
		if writing.Wait(); known != strconv.Itoa(last) {
			t.Errorf("who has followed has %s, want %d", known, last)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestFollowOfAnotherContent checks that Follow ends when the scope is opened with
// another transform: what it followed is no more.
func TestFollowOfAnotherContent(t *testing.T) {
	db := mem.New()
	openAs := func(transform string) store.Store {
		t.Helper()
		s, err := db.Open(store.Scope{Resource: "configmaps"}, store.Options{TransformVersion: transform})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := openAs("")
	if err := first.Apply(store.Batch{RV: "1"}); err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for e, err := range first.Follow(t.Context(), store.Place{}) {
			if err != nil {
				ended <- err
				return
			}
			if e.Mark != nil {
				close(begun)
			}
		}
	}()
	<-begun
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	early := make(chan error, 1)
	go func() {
		for _, err := range first.Follow(t.Context(), store.Place{RV: "50"}) {
			early <- err
		}
	}()
	second := openAs("another")
	if err := <-early; !errors.Is(err, store.ErrLineage) && !errors.Is(err, store.ErrClosed) {
		t.Errorf("Follow of what is to come ends with %v, want ErrLineage or ErrClosed", err)
	}
	if err := <-ended; !errors.Is(err, store.ErrLineage) {
		t.Errorf("Follow of the content before ends with %v, want ErrLineage", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestApplyEncoded(t *testing.T) { storetest.RunEncoded(t, mem.New()) }

// TestDepartsWithoutKey checks that an object that is replaced by another departs, though
// the caller has left its key to Prepare.
func TestDepartsWithoutKey(t *testing.T) {
	s := open(t)
	object := func(uid types.UID, rv string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: rv}}
	}
	for _, c := range []store.Change{{Object: object("1", "1")}, {Object: object("2", "2"), Departs: true}} {
		if err := s.Apply(store.Batch{RV: "2", Changes: []store.Change{c}}); err != nil {
			t.Fatal(err)
		}
	}
	if gone, err := s.(store.Departer).Departed(0, 2); err != nil || len(gone) != 1 {
		t.Errorf("departed: %v, %v; want one object", gone, err)
	}
}

// TestKeepAfterClose checks that a list that was given up takes no more.
func TestKeepAfterClose(t *testing.T) {
	r, err := open(t).Relist()
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Keep("a")
	r.Remove("a")
}

// TestCompareUnstorable checks that an object that cannot be stored is refused also where
// none is held.
func TestCompareUnstorable(t *testing.T) {
	want := (*store.ObjectError)(nil)
	if _, _, err := open(t).Compare(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); !errors.As(err, &want) {
		t.Errorf("got %v, want an ObjectError", err)
	}
}

// open returns a new store of config maps.
func open(t *testing.T) store.Store {
	t.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := mem.New().Open(store.Scope{Resource: "configmaps"}, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSelectorsOfScope checks that two spellings of a selector are one scope, and that a
// selector that cannot be parsed is refused.
func TestSelectorsOfScope(t *testing.T) {
	db := mem.New()
	openAs := func(labels, fields string) error {
		_, err := db.Open(store.Scope{Resource: "configmaps", LabelSelector: labels, FieldSelector: fields}, store.Options{})
		return err
	}
	if err := openAs("b=1,a=2", ""); err != nil {
		t.Fatal(err)
	}
	if err := openAs("a=2,b=1", ""); !errors.Is(err, store.ErrInUse) {
		t.Errorf("another spelling: %v, want ErrInUse", err)
	}
	for _, s := range [][2]string{{"a in", ""}, {"", "a"}} {
		if err := openAs(s[0], s[1]); err == nil || errors.Is(err, store.ErrInUse) {
			t.Errorf("labels %q, fields %q: %v, want an error that names the selector", s[0], s[1], err)
		}
	}
}

// TestSettleAfterClose checks that handlers may confirm after Close what they have
// received, and that a new one takes that back.
func TestSettleAfterClose(t *testing.T) {
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	for _, unsettles := range []bool{false, true} {
		db := mem.New()
		openAgain := func() store.Store {
			t.Helper()
			s, err := db.Open(store.Scope{Resource: "configmaps"}, store.Options{Codec: c})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := openAgain()
		for _, c := range []store.Change{{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, {Key: "a", Departs: true}} {
			if err := s.Apply(store.Batch{RV: "2", Changes: []store.Change{c}}); err != nil {
				t.Fatal(err)
			}
		}
		departer, want := s.(store.Departer), 0
		if unsettles {
			departer.Settle()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if unsettles {
			departer.Unsettle()
			want = 1
		} else {
			departer.Settle()
		}
		if gone, err := openAgain().(store.Departer).Departed(0, 2); err != nil || len(gone) != want {
			t.Errorf("unsettled %v: %d objects have departed (%v), want %d", unsettles, len(gone), err, want)
		}
	}
}
