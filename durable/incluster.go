package durable

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// InCluster returns a Shared in a ConfigMap, which it creates if there is none. A
// Consumer has one of its own. The client needs the verbs get, create and patch for it.
func InCluster(client kubernetes.Interface, namespace, name string) Shared {
	return &configMap{client, namespace, name}
}

// The keys of the ConfigMap: binaryData has the document compressed. data had it as text,
// which is newer if it is there: whoever compresses removes it.
const (
	documentKey = "consumer.json.zst"
	textKey     = "consumer.json"
)

type configMap struct {
	client          kubernetes.Interface
	namespace, name string
}

func (m *configMap) read(ctx context.Context) (b []byte, version string, err error) {
	found, err := m.client.CoreV1().ConfigMaps(m.namespace).Get(ctx, m.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("reading ConfigMap %s/%s: %w", m.namespace, m.name, err)
	}
	if text, ok := found.Data[textKey]; ok {
		return []byte(text), found.ResourceVersion, nil
	}
	return found.BinaryData[documentKey], found.ResourceVersion, nil
}

func (m *configMap) write(ctx context.Context, b []byte, version string) (string, error) {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: m.name, ResourceVersion: version},
		BinaryData: map[string][]byte{documentKey: b},
	}
	maps := m.client.CoreV1().ConfigMaps(m.namespace)
	var written *corev1.ConfigMap
	var err error
	if version == "" {
		written, err = maps.Create(ctx, want, metav1.CreateOptions{})
	} else {
		written, err = m.patch(ctx, want)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), version != "" && apierrors.IsNotFound(err):
		return "", errConflict
	case err != nil:
		return "", fmt.Errorf("writing ConfigMap %s/%s: %w", m.namespace, m.name, err)
	}
	return written.ResourceVersion, nil
}

// patch changes nothing but the document: labels may be somebody else's. With a resource
// version, a patch is refused like an update.
func (m *configMap) patch(ctx context.Context, want *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	b, err := json.Marshal(struct {
		*corev1.ConfigMap
		Data map[string]*string `json:"data"`
	}{want, map[string]*string{textKey: nil}})
	if err != nil {
		return nil, err
	}
	return m.client.CoreV1().ConfigMaps(m.namespace).Patch(ctx, m.name, types.MergePatchType, b, metav1.PatchOptions{})
}
