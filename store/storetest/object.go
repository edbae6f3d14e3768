package storetest

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// secret is part of every refused object. No error may contain it.
const secret = "hunter2"

// configMap returns an object. Each of its words is an index value of "words"; the first
// word, if there is one, is its label app.
func configMap(key, rv, words string) *corev1.ConfigMap {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		panic(err)
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: rv, UID: types.UID("uid-" + key),
		},
		Data: map[string]string{"words": words},
	}
	if fields := strings.Fields(words); len(fields) > 0 {
		cm.Labels = map[string]string{"app": fields[0]}
	}
	return cm
}

// annotated adds an annotation that makes words fail: "error" or "panic".
func annotated(cm *corev1.ConfigMap, value string) *corev1.ConfigMap {
	cm.Annotations = map[string]string{"words": value}
	cm.Data["secret"] = secret
	return cm
}

// words is an index function without an identity. It returns none, one or several values,
// some of them twice.
func words(obj any) ([]string, error) {
	cm := obj.(*corev1.ConfigMap)
	switch cm.Annotations["words"] {
	case "error":
		return nil, errors.New("no words")
	case "panic":
		panic(cm)
	}
	return strings.Fields(cm.Data["words"]), nil
}

// indexNames are the names of the indexes in options.
var indexNames = []string{"label:app", cache.NamespaceIndex, "words"}

// indexes returns the functions of these indexes, for comparison.
func indexes() cache.Indexers {
	return cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		"label:app":          index.Label("app").Func,
		"words":              words,
	}
}

// refused returns objects that no scope of config maps can store.
func refused() map[string]runtime.Object {
	return map[string]runtime.Object{
		"index function returns an error": annotated(configMap("a/error", "901", "x"), "error"),
		"index function panics":           annotated(configMap("a/panic", "902", "x"), "panic"),
		"no name":                         annotated(configMap("", "903", "x"), ""),
		"no metadata":                     &metav1.Status{Message: secret},
		"nil pointer":                     (*corev1.ConfigMap)(nil),
		"another type": &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "pod", Annotations: map[string]string{"s": secret}},
		},
	}
}

// configMapScope is the scope of most tests.
func configMapScope() store.Scope {
	return store.Scope{
		Cluster: "test", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	}
}

// widget returns an unstructured object.
func widget(name, rv, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": name, "namespace": "w", "resourceVersion": rv, "uid": "uid-" + name,
			"labels": map[string]any{"color": color},
		},
		"spec": map[string]any{
			"size": int64(3), "ratio": 0.5, "tags": []any{"x", true, nil}, "empty": map[string]any{},
		},
	}}
}
