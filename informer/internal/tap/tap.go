// Package tap takes objects from the answers of an API server as they are encoded there.
//
// client-go decodes each object of a list or a watch. A store then encodes it again, to
// the same bytes. A request whose context carries a [Tap] avoids both: a
// [http.RoundTripper] calls [Tap.Open] with the answer, and client-go then receives slim
// objects, which have a name, a namespace, a UID, a resource version and, as their
// selfLink, which object of which answer they are. The Tap keeps the bytes of the object
// until [Tap.Take] turns the slim object into a [store.EncodedObject]. No API server
// since Kubernetes 1.20 sets selfLink. Authorization, retries, rate limits and the
// ListerWatcher of the user stay as they are.
//
// # Which answers
//
// Of an informer whose objects have a Go type, only lists and watches in protobuf are
// tapped, and of them only messages that the codec would write for the decoded object: a
// message with a field that the Go type does not have, for example, reaches client-go
// whole. Of unstructured objects, lists and watches in JSON are tapped, and an object
// that is unusual, for example in the types of its metadata, comes whole, too. The first
// answer that cannot be tapped, such as one in another encoding, ends the tap: client-go
// then decodes all objects.
//
// # ListerWatchers that change or omit objects
//
// A ListerWatcher may change objects, and the changes would be lost. It may omit objects
// because of their content, of which a slim object has nothing. So each object of a
// tapped answer has a mark with its number in its selfLink, and some are sent whole
// beside their bytes and compared. When an object has lost its mark, was changed while it
// was slim, differs from its bytes or is not the next one of its answer, Take returns
// [ErrChanged], and the tap has ended. [Tap.Reached] does so if the last objects of a
// list, or those before a bookmark, were not taken. The caller lists again, because
// earlier objects may have been changed or omitted, too. Where a watch has no marks any
// more, Take and Reached do so if an object before that was not taken. That is also so
// behind 64 MiB of a watch that were not taken: the Tap keeps no more.
//
// # Malformed objects
//
// A [StandIns] replaces objects that cannot be decoded, before a Tap sees them.
//
// # Concurrency
//
// A Tap is safe for concurrent use.
package tap

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// ErrChanged is returned by Take and Reached for objects that are not as the server has
// sent them.
var ErrChanged = errors.New("the ListerWatcher changes the objects that the server sends, omits some or adds others: from now on, all are decoded")

// state is what is known of the answers. Only move changes it.
//
//	from                        to        when
//	untapped                    tapped    the first answer, if it can be tapped
//	untapped, tapped            declined  an answer or an object cannot be tapped, or
//	                                      too much of a watch was not taken
//	untapped, tapped, declined  changed   an object is not as it was sent
type state = int32

const (
	untapped state = iota
	tapped         // all objects have marks
	declined       // objects may have marks
	changed        // objects may have marks, and are not to be trusted
)

// Tap is for the requests of one informer.
type Tap struct {
	codec            codec.Codec
	protobuf         codec.FromServer // the codec, or nil
	json             codec.FromJSON   // the codec, or nil
	apiVersion, kind string           // kind may be "" for unstructured objects
	resource         string           // as in a path
	strip            bool             // managedFields are removed
	mark             string           // how the selfLink of a marked object begins
	state            atomic.Int32
	// number of objects that were, or could have been, slim
	slim atomic.Uint64

	// mu protects the fields below, and those of the answers.
	mu      sync.Mutex
	last    uint64             // number of the last answer
	answers map[uint64]*answer // by number
	points  []point            // that were not reached, in the order of the answers
}

// The mark is followed by the number of the answer and the number of the object in it, in
// hexadecimal, by what has happened to the object, and by how it is sent: one of each of
// these.
const (
	isLive    = 'l'
	isDeleted = 'd' // it comes with a deletion

	isSlim  = 'r' // client-go receives no more than the identity of the object
	isWhole = 's' // client-go receives the whole object, too
	asSent  = 'p' // there is no encoding; the rest is the selfLink, as that of a stand-in
)

// numbers is the size of the two numbers behind the mark.
const numbers = 32

// fate returns what has happened to an object.
func fate(deleted bool) byte {
	if deleted {
		return isDeleted
	}
	return isLive
}

// firstWhole and wholeEvery say which objects are sent whole: the first ones, and then
// one of so many.
const (
	firstWhole = 4
	wholeEvery = 256
)

// New returns a Tap for the objects of a resource, named as in a path. With strip, the
// objects that it takes encoded lack their managedFields. It returns nil if the codec is
// neither a [codec.FromServer] nor a [codec.FromJSON].
func New(c codec.Codec, kind schema.GroupVersionKind, resource string, strip bool) *Tap {
	t := &Tap{
		codec: c, apiVersion: kind.GroupVersion().String(), kind: kind.Kind, resource: resource, strip: strip, mark: newMark(),
		answers: map[uint64]*answer{},
	}
	t.protobuf, _ = c.(codec.FromServer)
	t.json, _ = c.(codec.FromJSON)
	if t.protobuf == nil && t.json == nil {
		return nil
	}
	return t
}

// newMark returns a text that no selfLink begins with.
func newMark() string { return "\x00informctl/" + rand.Text() + "/" }

func (t *Tap) move(to state, from ...state) {
	for _, f := range from {
		t.state.CompareAndSwap(f, to)
	}
}

type contextKey struct{}

// With returns a context whose requests are tapped.
func (t *Tap) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// From returns the Tap of a request, nil if it has none.
func From(ctx context.Context) *Tap {
	t, _ := ctx.Value(contextKey{}).(*Tap)
	return t
}

// Open taps the answer to a request: it replaces its body. It does nothing if t is nil.
func (t *Tap) Open(r *http.Request, resp *http.Response) {
	if t == nil || resp.StatusCode != http.StatusOK || t.state.Load() == changed {
		return
	}
	if t.json != nil && path.Base(r.URL.Path) != t.resource {
		return // the ListerWatcher asks for something else, too
	}
	media, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	query := r.URL.Query()
	isWatch, _ := strconv.ParseBool(query.Get("watch"))
	// The path is the old way to ask for a watch.
	isStream := isWatch || params["stream"] == "watch" || strings.Contains(r.URL.Path, "/watch/")
	a := t.begin(isStream, query.Get("continue"))
	want := runtime.ContentTypeProtobuf
	if t.json != nil {
		want = runtime.ContentTypeJSON
	}
	if t.state.Load() == declined || err != nil || media != want || params["as"] != "" ||
		resp.Header.Get("Content-Encoding") != "" {
		t.move(declined, untapped, tapped)
		t.drop(a)
		return
	}
	t.move(tapped, untapped)
	switch {
	case isStream && t.json != nil:
		resp.Body = &jsonStream{jsonMarker: jsonMarker{tap: t, answer: a}, body: resp.Body}
		return
	case isStream:
		resp.Body = newStream(t, a, resp.Body)
		return
	}
	l := &list{tap: t, answer: a, body: resp.Body, slim: protobufList}
	if t.json != nil {
		l.slim = jsonList
	}
	resp.Body = l
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

// appendNumbers appends the numbers of an answer and of an object in it.
func appendNumbers(b []byte, answer, object uint64) []byte {
	var n [numbers / 2]byte
	binary.BigEndian.PutUint64(n[:], answer)
	binary.BigEndian.PutUint64(n[8:], object)
	return hex.AppendEncode(b, n[:])
}

// choose returns how the next object is sent, if it can be slim.
func (t *Tap) choose() byte {
	if n := t.slim.Add(1); n <= firstWhole || n%wholeEvery == 0 {
		return isWhole
	}
	return isSlim
}

// Take returns the object that was encoded in a slim object. An object that was decoded
// is returned as the server has sent it, and those of other clients unchanged. deleted
// says that the object comes with a deletion: a ListerWatcher that makes one of another
// event has seen no content of a slim object.
func (t *Tap) Take(obj runtime.Object, deleted bool) (runtime.Object, error) {
	if t == nil {
		return obj, nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil // the caller finds out
	}
	content, marked := strings.CutPrefix(accessor.GetSelfLink(), t.mark)
	switch {
	case !marked && t.state.Load() != tapped:
		if t.hasOmitted() {
			return nil, t.refuse()
		}
		return obj, nil
	case !marked || len(content) <= numbers+1 || content[numbers] != fate(deleted):
		return nil, t.refuse()
	}
	kept, isNext := t.isNext(content[:numbers])
	if content = content[numbers+1:]; !isNext {
		return nil, t.refuse()
	}
	how := content[0]
	if how == asSent {
		accessor.SetSelfLink(content[1:])
		return obj, nil
	}
	taken := t.take(accessor, obj, how, kept)
	if taken == nil || t.state.Load() == changed {
		return nil, t.refuse()
	}
	return taken, nil
}

func (t *Tap) refuse() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refuseLocked()
}

// refuseLocked ends the tap for good: nothing that it keeps is taken any more.
func (t *Tap) refuseLocked() error {
	t.move(changed, untapped, tapped, declined)
	t.forgetLocked()
	return ErrChanged
}

// take returns nil if the object is not as it was sent.
func (t *Tap) take(accessor metav1.Object, obj runtime.Object, how byte, data []byte) runtime.Object {
	out := &store.EncodedObject{Data: data, Cell: store.NewCell(nil)}
	m, ok := codec.MetadataOf(t.codec, data)
	if !ok {
		return nil
	}
	switch how {
	case isWhole:
		accessor.SetSelfLink("")
		if t.strip && t.json != nil {
			accessor.SetManagedFields(nil) // as data was written
		}
		if is, err := t.codec.Encode(obj); err != nil || !bytes.Equal(is, data) {
			return nil
		}
		if t.strip {
			accessor.SetManagedFields(nil)
		}
		out.Cell = store.NewCell(obj)
	case isSlim:
		if !isUnchanged(accessor, m) || !isSlimUnstructured(obj, m) {
			return nil
		}
	default:
		return nil
	}
	if t.strip && t.protobuf != nil {
		message, _ := t.protobuf.Message(data)
		head := data[:len(data)-len(message)]
		if out.Data, ok = codec.AppendWithoutManagedFields(append(make([]byte, 0, len(data)), head...), message); !ok {
			return nil
		}
	}
	out.Name, out.Namespace = accessor.GetName(), accessor.GetNamespace()
	out.UID, out.ResourceVersion = accessor.GetUID(), accessor.GetResourceVersion()
	return out
}

// isSlimUnstructured reports whether an object, if it is unstructured, has no members but
// those that appendSlim writes and its selfLink.
func isSlimUnstructured(obj runtime.Object, m codec.Metadata) bool {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return true
	}
	members := 1
	for _, value := range [][]byte{m.Name, m.Namespace, m.UID, m.RV} {
		if len(value) > 0 {
			members++
		}
	}
	metadata, ok := u.Object["metadata"].(map[string]any)
	return ok && len(u.Object) == 3 && len(metadata) == members &&
		u.GetAPIVersion() == string(m.APIVersion) && u.GetKind() == string(m.Kind)
}

// isUnchanged reports whether the metadata of a slim object is as it was sent.
func isUnchanged(slim metav1.Object, m codec.Metadata) bool {
	created := slim.GetCreationTimestamp()
	return slim.GetName() == string(m.Name) && slim.GetNamespace() == string(m.Namespace) &&
		slim.GetUID() == types.UID(m.UID) && slim.GetResourceVersion() == string(m.RV) &&
		slim.GetLabels() == nil && slim.GetAnnotations() == nil && slim.GetOwnerReferences() == nil &&
		slim.GetFinalizers() == nil && slim.GetManagedFields() == nil && slim.GetDeletionTimestamp() == nil &&
		slim.GetGenerateName() == "" && slim.GetGeneration() == 0 && created.IsZero()
}
