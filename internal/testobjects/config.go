package testobjects

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMap returns config map i, about 2 KB as JSON: a YAML document and a few single
// values.
func ConfigMap(i int, seed int64) *corev1.ConfigMap {
	s := newSource(streamConfigMap, i, seed)
	cm := &corev1.ConfigMap{ObjectMeta: s.objectMeta(i, namespaceOf(i), fmt.Sprintf("%s-config-%06d", domains[i%len(domains)], i))}
	cm.Labels = map[string]string{"app": domains[i%len(domains)], "team": s.pick(teams), "app.kubernetes.io/managed-by": "Helm"}
	var document strings.Builder
	document.WriteString("server:\n  listen: 0.0.0.0:8080\nupstreams:\n")
	for range 8 + s.IntN(8) {
		fmt.Fprintf(&document, "- name: %s-%s\n  address: 10.%d.%d.%d:%d\n  weight: %d\n  timeout: %ds\n",
			s.pick(domains), s.pick(roles), s.IntN(256), s.IntN(256), s.IntN(256), 1024+s.IntN(60000), s.IntN(100), 1+s.IntN(60))
	}
	cm.Data = map[string]string{
		"config.yaml": document.String(),
		"log-level":   s.pick([]string{"debug", "info", "warn"}),
		"revision":    s.hex(40),
	}
	var fields fieldSet
	fields.open("data", func() { fields.leaf("config.yaml", "log-level", "revision") })
	fields.within("f:metadata", func() {
		fields.open("labels", func() { fields.leaf("app", "app.kubernetes.io/managed-by", "team") })
	})
	cm.ManagedFields = []metav1.ManagedFieldsEntry{fields.entry("helm", "v1", "", cm.CreationTimestamp)}
	return cm
}

// Secret returns opaque secret i with size random bytes, which do not compress.
func Secret(i int, seed int64, size int) *corev1.Secret {
	s := newSource(streamSecret, i, seed)
	secret := &corev1.Secret{ObjectMeta: s.objectMeta(i, namespaceOf(i), fmt.Sprintf("%s-secret-%06d", domains[i%len(domains)], i))}
	secret.Labels = map[string]string{"app": domains[i%len(domains)], "team": s.pick(teams)}
	secret.Type = corev1.SecretTypeOpaque
	secret.Data = map[string][]byte{"value": s.bytes(size)}
	return secret
}
