package index

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
)

// Namespace returns the index named [cache.NamespaceIndex] with the function
// [cache.MetaNamespaceIndexFunc]. Objects without a namespace have the value "".
func Namespace() Index {
	return Index{Name: cache.NamespaceIndex, Version: "1", Func: cache.MetaNamespaceIndexFunc}
}

// Label returns the index named "label:KEY" of the values of the label KEY. An object
// without the label has no value; an empty label has the value "".
func Label(key string) Index {
	return Index{Name: "label:" + key, Version: "1", Params: key, Func: func(obj any) ([]string, error) {
		m, err := accessor(obj)
		if err != nil {
			return nil, err
		}
		if value, ok := m.GetLabels()[key]; ok {
			return []string{value}, nil
		}
		return nil, nil
	}}
}

// OwnerUID returns the index named "owner" of the UIDs of all owner references.
func OwnerUID() Index {
	return Index{Name: "owner", Version: "1", Func: func(obj any) ([]string, error) {
		m, err := accessor(obj)
		if err != nil {
			return nil, err
		}
		var uids []string
		for _, ref := range m.GetOwnerReferences() {
			uids = append(uids, string(ref.UID))
		}
		return uids, nil
	}}
}

// NodeName returns the index named "node" of the node to which a typed or unstructured
// pod is bound. An unbound pod has no value. Objects of other types are errors.
func NodeName() Index {
	return Index{Name: "node", Version: "1", Func: nodeName}
}

func nodeName(obj any) ([]string, error) {
	if _, err := accessor(obj); err != nil {
		return nil, err
	}
	var name string
	switch obj := obj.(type) {
	case *corev1.Pod:
		name = obj.Spec.NodeName
	case *unstructured.Unstructured:
		var err error
		if name, _, err = unstructured.NestedString(obj.Object, "spec", "nodeName"); err != nil {
			// The error is not wrapped, because it shows the value.
			return nil, fmt.Errorf("index %q: spec.nodeName is not a string", "node")
		}
	default:
		return nil, fmt.Errorf("index %q: a %T is not a pod", "node", obj)
	}
	if name == "" {
		return nil, nil
	}
	return []string{name}, nil
}

// Parse returns the predefined index that spec names: "namespace", "label:KEY",
// "field:PATH", "owner" or "node". Its error for any other spec lists these forms.
func Parse(spec string) (Index, error) {
	form, arg, hasArg := strings.Cut(spec, ":")
	switch {
	case spec == cache.NamespaceIndex:
		return Namespace(), nil
	case spec == "owner":
		return OwnerUID(), nil
	case spec == "node":
		return NodeName(), nil
	case form == "field" && hasArg:
		return Field(arg)
	case form == "label" && hasArg:
		if problems := validation.IsQualifiedName(arg); len(problems) > 0 {
			return Index{}, fmt.Errorf("index %q: label key: %s", spec, strings.Join(problems, "; "))
		}
		return Label(arg), nil
	}
	return Index{}, fmt.Errorf("index %q: want one of namespace, label:KEY, field:PATH, owner, node", spec)
}
