package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/testobjects"
)

const (
	seed = 1
	// firstRV is so large that all resource versions have the same length.
	firstRV = 1_000_000_000
	// sentKey is the annotation with the time at which an event was sent, in Unix
	// nanoseconds. sentMark is its value in an object that was never changed.
	sentKey  = "bench.informctl.dev/sent"
	sentMark = "7070707070707070707"
	// largeBytes is the approximate size of a large object.
	largeBytes = 100_000
)

// kind is a kind of objects to measure.
type kind struct {
	name  string
	title string
	gvr   schema.GroupVersionResource
	gvk   schema.GroupVersionKind
	form  form
	// large objects are measured in the number that -large says.
	large   bool
	example func() kruntime.Object
	object  func(i int) kruntime.Object
	reads   func(*child) error
}

// form is what a client decodes, from what.
type form int

const (
	typed      form = iota // in protobuf
	typedJSON              // custom resources with a Go type
	schemaless             // unstructured objects, in JSON
)

// typedKind returns a kind of client-go's scheme. Its Go type has its name.
func typedKind[T kruntime.Object](name, title string, gvr schema.GroupVersionResource, object func(i int) T) kind {
	example := func() kruntime.Object { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }
	return kind{
		name: name, title: title, gvr: gvr, gvk: gvr.GroupVersion().WithKind(reflect.TypeFor[T]().Elem().Name()),
		example: example, object: func(i int) kruntime.Object { return object(i) }, reads: measureReads[T],
	}
}

func kinds() []kind {
	core, discovery := corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion
	largeOnes := typedKind("large", "config maps, typed, protobuf, 100 KB each", core.WithResource("configmaps"), largeConfigMap)
	largeOnes.large = true
	widgets := kind{
		name: "typedwidgets", title: "custom resources, typed, JSON, 5 KB each",
		gvr: testobjects.WidgetResource, gvk: testobjects.WidgetKind, form: typedJSON,
		example: func() kruntime.Object { return &testobjects.TypedWidget{} },
		object:  func(i int) kruntime.Object { return testobjects.NewTypedWidget(i, seed) },
		reads:   measureReads[*testobjects.TypedWidget],
	}
	return []kind{
		typedKind(boundKind, "pods, typed, protobuf, 10 KB each", core.WithResource("pods"),
			func(i int) *corev1.Pod { return testobjects.Pod(i, seed) }),
		typedKind("nodes", "nodes, typed, protobuf, 10 KB each", core.WithResource("nodes"),
			func(i int) *corev1.Node { return testobjects.Node(i, seed) }),
		typedKind("secrets", "Secrets, typed, protobuf, 2 KB each", core.WithResource("secrets"),
			func(i int) *corev1.Secret { return testobjects.Secret(i, seed, 2000) }),
		typedKind("configmaps", "config maps, typed, protobuf, 2 KB each", core.WithResource("configmaps"),
			func(i int) *corev1.ConfigMap { return testobjects.ConfigMap(i, seed) }),
		typedKind("endpointslices", "endpoint slices, typed, protobuf, 2 KB each", discovery.WithResource("endpointslices"),
			func(i int) *discoveryv1.EndpointSlice { return testobjects.EndpointSlice(i, seed) }),
		widgets,
		{
			name: "widgets", title: "custom resources, unstructured, JSON, 5 KB each",
			gvr: widgets.gvr, gvk: widgets.gvk, form: schemaless,
			example: func() kruntime.Object {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(testobjects.WidgetKind)
				return u
			},
			object: func(i int) kruntime.Object { return testobjects.Widget(i, seed) },
			reads:  measureReads[*unstructured.Unstructured],
		},
		largeOnes,
	}
}

func (k kind) isProtobuf() bool { return k.form == typed }

func kindNames() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

func kindOf(name string) (kind, error) {
	for _, k := range kinds() {
		if k.name == name {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("no kind %q", name)
}

// largeConfigMap joins the documents of many config maps into one.
func largeConfigMap(i int) *corev1.ConfigMap {
	cm := testobjects.ConfigMap(i, seed)
	var all strings.Builder
	for k := 0; all.Len() < largeBytes; k++ {
		all.WriteString(testobjects.ConfigMap(1_000_000+i*200+k, seed).Data["config.yaml"])
	}
	cm.Data["config.yaml"] = all.String()
	return cm
}

// item is one object in its wire encoding.
type item struct {
	key          string
	data         []byte // never modified
	rvAt, sentAt int    // offsets of the resource version and the time
	rawAt, rawTo int    // the object without its envelope, for lists in protobuf
}

// with returns a copy of the object with another resource version and sending time.
func (it item) with(rv uint64, sent int64) item {
	it.data = bytes.Clone(it.data)
	copy(it.data[it.rvAt:], strconv.FormatUint(rv, 10))
	copy(it.data[it.sentAt:], strconv.FormatInt(sent, 10))
	return it
}

// collection contains all objects in the order of their keys, and their total size as
// compact JSON.
type collection struct {
	items     []item
	jsonBytes int64
}

func (k kind) collection(n int) (collection, error) {
	c := collection{items: make([]item, n)}
	var g errgroup.Group
	var jsonBytes atomic.Int64
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		g.Go(func() error {
			for i := w; i < n; i += workers {
				size, err := k.encode(i, &c.items[i])
				if err != nil {
					return fmt.Errorf("encode object %d: %w", i, err)
				}
				jsonBytes.Add(int64(size))
			}
			return nil
		})
	}
	err := g.Wait()
	c.jsonBytes = jsonBytes.Load()
	slices.SortFunc(c.items, func(a, b item) int { return strings.Compare(a.key, b.key) })
	return c, err
}

func (k kind) encode(i int, it *item) (jsonBytes int, err error) {
	obj := k.object(i)
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return 0, err
	}
	rv := strconv.Itoa(firstRV + 1 + i)
	accessor.SetResourceVersion(rv)
	annotations := accessor.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[sentKey] = sentMark
	accessor.SetAnnotations(annotations)
	it.key = cache.MetaObjectToName(accessor).String()
	text, err := compactJSON(obj)
	if err != nil {
		return 0, err
	}
	it.data = text
	if k.isProtobuf() {
		if it.data, err = k.envelope(obj); err != nil {
			return 0, err
		}
		raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
		if err != nil {
			return 0, err
		}
		it.rawAt = bytes.Index(it.data, raw)
		it.rawTo = it.rawAt + len(raw)
	}
	it.rvAt, it.sentAt = bytes.Index(it.data, []byte(rv)), bytes.Index(it.data, []byte(sentMark))
	if bytes.Count(it.data, []byte(rv)) != 1 || bytes.Count(it.data, []byte(sentMark)) != 1 || it.rawAt < 0 {
		return 0, fmt.Errorf("%s has its resource version or time more than once", it.key)
	}
	return len(text), nil
}

func compactJSON(obj kruntime.Object) ([]byte, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return json.Marshal(u.Object)
	}
	return json.Marshal(obj)
}

// envelope encodes an object in protobuf as the API server does.
func (k kind) envelope(obj kruntime.Object) ([]byte, error) {
	var b bytes.Buffer
	err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(k.named(obj), &b)
	return b.Bytes(), err
}

// named sets the kind of an object, which may be a status.
func (k kind) named(obj kruntime.Object) kruntime.Object {
	gvk := k.gvk
	if _, status := obj.(*metav1.Status); status {
		gvk = schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

// bare encodes an object with only metadata, such as a bookmark, or a status.
func (k kind) bare(obj kruntime.Object) ([]byte, error) {
	if k.isProtobuf() {
		return k.envelope(obj)
	}
	return compactJSON(k.named(obj))
}

// appendEvent appends the frame of one watch event to b.
func (k kind) appendEvent(b []byte, event string, object []byte) []byte {
	if !k.isProtobuf() {
		b = append(b, `{"type":"`...)
		b = append(b, event...)
		b = append(b, `","object":`...)
		b = append(b, object...)
		return append(b, "}\n"...)
	}
	// The frame is a metav1.WatchEvent: its type, and a RawExtension whose only field is
	// the object.
	var extension, message []byte
	extension = binary.AppendUvarint(append(extension, 1<<3|2), uint64(len(object)))
	message = binary.AppendUvarint(append(message, 1<<3|2), uint64(len(event)))
	message = append(message, event...)
	message = binary.AppendUvarint(append(message, 2<<3|2), uint64(len(extension)+len(object)))
	message = append(message, extension...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)+len(object)))
	return append(append(b, message...), object...)
}
