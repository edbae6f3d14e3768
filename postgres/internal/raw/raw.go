// Package raw has objects as an API server has sent them: their bytes, and of their
// content no more than a log needs.
package raw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/codec"
)

// Form is how an object is encoded. The numbers are part of the database's format.
type Form int16

const (
	// Protobuf is a message of protobuf, without the API server's envelope.
	Protobuf Form = 1
	// JSON is JSON.
	JSON Form = 2
)

// Object is an object of an API server. Data must not be changed.
type Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name, namespace, UID and resource version; of a bookmark all
	Form              Form
	Data              []byte
}

// DeepCopyObject implements runtime.Object. The copy shares Data.
func (o *Object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// magic begins the envelope of protobuf.
var magic = []byte("k8s\x00")

var errMalformed = errors.New("the answer of the API server is malformed")

// Decode returns the Object of the bytes of one object.
func Decode(data []byte) (*Object, error) {
	if bytes.HasPrefix(data, magic) {
		var u runtime.Unknown
		if err := u.Unmarshal(data[len(magic):]); err != nil {
			return nil, errMalformed
		}
		o := &Object{Form: Protobuf, Data: u.Raw}
		o.APIVersion, o.Kind = u.APIVersion, u.Kind
		return o, o.readProtobuf()
	}
	o := &Object{Form: JSON, Data: data}
	return o, o.readJSON()
}

func (o *Object) readProtobuf() error {
	if isEnd(o.Data) {
		var m metav1.PartialObjectMetadata
		if err := m.Unmarshal(o.Data); err != nil {
			return errMalformed
		}
		o.ObjectMeta = m.ObjectMeta
		return nil
	}
	m, ok := codec.ReadMetadata(o.Data)
	if !ok {
		return errMalformed
	}
	o.Name, o.Namespace, o.UID, o.ResourceVersion = string(m.Name), string(m.Namespace), types.UID(m.UID), string(m.RV)
	return nil
}

// isEnd reports whether an object may be the bookmark that ends the initial events of a
// watch: the reflector reads its annotation.
func isEnd(data []byte) bool { return bytes.Contains(data, []byte(metav1.InitialEventsAnnotationKey)) }

func (o *Object) readJSON() error {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Name            string    `json:"name"`
			Namespace       string    `json:"namespace"`
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(o.Data, &head); err != nil {
		return errMalformed
	}
	o.TypeMeta = head.TypeMeta
	o.Name, o.Namespace, o.UID, o.ResourceVersion = head.Metadata.Name, head.Metadata.Namespace, head.Metadata.UID, head.Metadata.ResourceVersion
	if !isEnd(o.Data) {
		return nil
	}
	var end metav1.PartialObjectMetadata
	if err := json.Unmarshal(o.Data, &end); err != nil {
		return errMalformed
	}
	o.ObjectMeta = end.ObjectMeta
	return nil
}

// DecodeList returns the Objects of the bytes of a list of objects of a kind.
func DecodeList(data []byte, kind schema.GroupVersionKind) (*metainternalversion.List, error) {
	if bytes.HasPrefix(data, magic) {
		return decodeProtobufList(data, kind)
	}
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, errMalformed
	}
	out := &metainternalversion.List{ListMeta: list.Metadata}
	for _, item := range list.Items {
		// An item of a built-in kind does not say what it is.
		o := &Object{Form: JSON, Data: item}
		if err := o.readJSON(); err != nil {
			return nil, err
		}
		if o.Kind == "" {
			var err error
			if o.Data, err = named(item, kind); err != nil {
				return nil, err
			}
			o.APIVersion, o.Kind = kind.ToAPIVersionAndKind()
		}
		out.Items = append(out.Items, o)
	}
	return out, nil
}

// named returns the JSON of an object with its kind.
func named(item []byte, kind schema.GroupVersionKind) ([]byte, error) {
	apiVersion, name := kind.ToAPIVersionAndKind()
	head, err := json.Marshal(metav1.TypeMeta{APIVersion: apiVersion, Kind: name})
	if err != nil {
		return nil, fmt.Errorf("name the kind of an object: %w", err)
	}
	rest := bytes.TrimSpace(item)
	if len(rest) < 2 || rest[0] != '{' {
		return nil, errMalformed
	}
	if rest = bytes.TrimSpace(rest[1:]); rest[0] == '}' {
		return head, nil
	}
	return append(append(head[:len(head)-1], ','), rest...), nil
}

// The fields of every list of Kubernetes.
const (
	metadataField = 1
	itemField     = 2
)

func decodeProtobufList(data []byte, kind schema.GroupVersionKind) (*metainternalversion.List, error) {
	var u runtime.Unknown
	if err := u.Unmarshal(data[len(magic):]); err != nil || !strings.HasSuffix(u.Kind, "List") {
		return nil, errMalformed
	}
	out := &metainternalversion.List{}
	for rest := u.Raw; len(rest) > 0; {
		number, wireType, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil, errMalformed
		}
		field := rest[protowire.SizeTag(number):n]
		rest = rest[n:]
		if wireType != protowire.BytesType {
			continue
		}
		content, n := protowire.ConsumeBytes(field)
		if n < 0 {
			return nil, errMalformed
		}
		switch number {
		case metadataField:
			if err := out.ListMeta.Unmarshal(content); err != nil {
				return nil, errMalformed
			}
		case itemField:
			o := &Object{Form: Protobuf, Data: content}
			o.APIVersion, o.Kind = kind.ToAPIVersionAndKind()
			if err := o.readProtobuf(); err != nil {
				return nil, err
			}
			out.Items = append(out.Items, o)
		}
	}
	return out, nil
}

// Unmarshal decodes the metadata of an object.
func Unmarshal(form Form, data []byte, into *metav1.PartialObjectMetadata) error {
	if form != Protobuf {
		if err := json.Unmarshal(data, into); err != nil {
			return errMalformed
		}
		return nil
	}
	if err := into.Unmarshal(data); err != nil {
		return errMalformed
	}
	return nil
}
