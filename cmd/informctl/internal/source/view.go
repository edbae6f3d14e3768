package source

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// View is one scope that is open for reading.
type View struct {
	Info store.Info
	store.Reader
	ShowSecrets bool
	Later       []*View // of the same collection, with later states; a selection sets it
	Whole       []*View // where this has metadata: the others that have objects
	Search      Search
	at          store.Place // the moment to read; zero is now
	ofFile      bool        // no process changes what is read
}

// IsWhole reports whether a view has whole objects, and not only their metadata.
func (v *View) IsWhole() bool { return v.Info.Scope.Form != store.Metadata }

// LacksType reports whether this program does not have the Go type of the objects, and
// decodes nothing but their metadata.
func (v *View) LacksType() bool {
	return v.Info.Scope.Form == store.Typed && v.Info.Codec == "protobuf" && codec.ForKind(v.Info.Scope.Kind).ID() != codec.IDProtobuf
}

// Search says how objects of a scope were found, for --explain.
type Search struct {
	By                     []string // the indexes that were used
	Keys, Decoded, Matched int      // numbers of objects
	Labels                 string   // the objects whose labels were read
}

// Explanation says how objects were found, for a person.
func (v *View) Explanation() string {
	s, by := v.Search, "no index"
	if len(s.By) > 0 {
		by = "index " + strings.Join(s.By, " and ")
	}
	if s.Labels != "" {
		by += ", the labels of " + s.Labels
	}
	return fmt.Sprintf("%s: %s: %d of %d objects looked at, %d decoded to choose, %d chosen",
		v.Info.Scope, by, s.Keys, v.Info.Objects, s.Decoded, s.Matched)
}

// WholeObjects is the decoder for Database.Open of commands that need whole objects.
func WholeObjects(store.Scope) (codec.Codec, error) { return nil, nil }

// Opened are scopes that are open for reading.
type Opened struct {
	Views  []*View
	Left   []string // the names of those whose first list is not complete
	Unread Unread
}

// Open opens the complete scopes. If decoder returns a codec for a scope, that codec
// decodes the records in its format.
func (d *Database) Open(infos []store.Info, decoder func(store.Scope) (codec.Codec, error)) (out Opened, err error) {
	for _, info := range infos {
		if !info.Complete {
			out.Left = append(out.Left, info.Scope.String())
			continue
		}
		v, err := d.openView(info, decoder)
		if err != nil {
			if err := out.Unread.Add(info, err); err != nil {
				return Opened{}, fmt.Errorf("open %s: %w", info.Scope, err)
			}
			continue
		}
		out.Views = append(out.Views, v)
	}
	return out, nil
}

func (d *Database) openView(info store.Info, decoder func(store.Scope) (codec.Codec, error)) (*View, error) {
	c, err := decoder(info.Scope)
	if err != nil {
		return nil, err
	}
	r, err := d.OpenScope(info, c)
	if err != nil {
		return nil, err
	}
	v := &View{Info: info, Reader: r, ShowSecrets: d.ShowSecrets, at: d.at, ofFile: d.process == nil}
	if !d.at.IsZero() {
		err = v.describeThen()
	}
	return v, err
}

// Decode returns an object with its kind. It redacts Secrets unless they are to be shown.
func (v *View) Decode(e store.Entry) (object runtime.Object, err error) {
	if object, err = v.Reader.Decode(e); err != nil {
		return nil, err
	}
	object = v.WithKinds(object)
	if v.ShowSecrets || !secret.Is(v.Info.Scope, object) {
		return object, nil
	}
	return secret.Redact(object)
}

// WithKinds sets the kind of an object that has none, and returns it with those of its
// inner objects.
func (v *View) WithKinds(object runtime.Object) runtime.Object {
	kind := object.GetObjectKind()
	if gvk := kind.GroupVersionKind(); gvk.Kind == "" || gvk.Version == "" {
		if gvk = v.Info.Scope.Kind; gvk.Kind == "" {
			// Other objects have a kind.
			gvk = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
		}
		kind.SetGroupVersionKind(gvk)
	}
	return wire.WithKinds(object)
}
