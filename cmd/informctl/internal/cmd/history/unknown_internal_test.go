package history

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

type decoded struct{ store.Reader }

func (decoded) Decode(e store.Entry) (runtime.Object, error) { return e.Object.DeepCopyObject(), nil }

// TestWhereOfUnknownState checks that --where does not take a state that is not known any
// more for one that was not there.
func TestWhereOfUnknownState(t *testing.T) {
	known := func(node string) *store.Version {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: corev1.PodSpec{NodeName: node}}
		return &store.Version{Header: store.Header{Key: "ns/a"}, Entry: store.Entry{Key: "ns/a", Object: pod}}
	}
	unknown := &store.Version{Header: store.Header{Key: "ns/a"}}
	const note = "--where has no answer for 1 of 1 changes, which count as not matching: a state is not known any more"
	for _, c := range []struct {
		where    string
		old, new *store.Version
		found    bool
		note     string
	}{
		{"object == null", known("n"), unknown, false, note},
		{"object == null && oldObject.spec.nodeName == 'n'", known("n"), unknown, false, note},
		{"oldObject == null", unknown, known("n"), false, note},
		{"!has(object.spec)", nil, unknown, false, note},
		{"oldObject.spec.nodeName != object.spec.nodeName", unknown, known("n"), false, note},
		{"oldObject != null && !oldObject.metadata.name.startsWith('b')", unknown, nil, false, note},
		// The other state tells.
		{"oldObject.spec.nodeName == 'n' || object == null", known("n"), unknown, true, ""},
		{"oldObject.spec.nodeName == 'm' && object == null", known("n"), unknown, false, ""},
		{"object == null", unknown, nil, true, ""},
		{"oldObject == null", nil, unknown, true, ""},
		{"oldObject == null", nil, known("n"), true, ""},
	} {
		var errOut bytes.Buffer
		env := cmdutil.Env{Streams: genericiooptions.IOStreams{ErrOut: &errOut}, Now: time.Now}
		o := &options{env: env, selection: selection.Options{Env: env}, output: "name"}
		var err error
		if o.selection.Sieve.Where, err = selection.ParseCondition(c.where, time.Now(), selection.OldVariable); err != nil {
			t.Fatal(err)
		}
		h := &historian{o: o, view: &source.View{Reader: decoded{}, Info: store.Info{Scope: store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}}}}
		line, err := h.row(store.Event{Key: "ns/a", RV: "5", Old: c.old, New: c.new})
		if err != nil || (line != nil) != c.found {
			t.Errorf("%s: found is %v, %v", c.where, line != nil, err)
		}
		if err := o.selection.Explain(nil); err != nil {
			t.Errorf("%s: %v", c.where, err)
		}
		if got := strings.TrimSpace(strings.TrimPrefix(errOut.String(), "informctl: ")); got != c.note {
			t.Errorf("%s: the note is %q, want %q", c.where, got, c.note)
		}
	}
}
