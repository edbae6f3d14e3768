package deploy_test

import (
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// monitoring are the kinds of the Prometheus Operator that the manifests have, by their
// resource.
var monitoring = map[string]struct {
	kind string
	typ  func() any
}{
	"servicemonitors": {"ServiceMonitor", func() any { return &monitoringv1.ServiceMonitor{} }},
	"prometheusrules": {"PrometheusRule", func() any { return &monitoringv1.PrometheusRule{} }},
}

const monitoringGroup = "monitoring.coreos.com"

// serveMonitoring makes the API server serve the kinds of the Prometheus Operator, with
// any fields: checkMonitoring checks these.
func (w *world) serveMonitoring() {
	w.t.Helper()
	w.must(apiextensionsv1.AddToScheme(w.admin.Scheme()))
	for resource, m := range monitoring {
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: resource + "." + monitoringGroup},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: monitoringGroup, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: resource, Kind: m.kind},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: ptr.To(true),
					}},
				}},
			},
		}
		w.must(w.admin.Create(w.t.Context(), crd))
		objects := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": monitoringGroup + "/v1", "kind": m.kind + "List"}}
		for err := w.admin.List(w.t.Context(), objects); err != nil; err = w.admin.List(w.t.Context(), objects) {
			if !meta.IsNoMatchError(err) && client.IgnoreNotFound(err) != nil {
				w.t.Fatal(err)
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-w.t.Context().Done():
				w.t.Fatal(err)
			}
		}
	}
}

// checkMonitoring checks that an object of the Prometheus Operator has only fields that
// the operator's types have.
func checkMonitoring(t *testing.T, name string, u *unstructured.Unstructured) {
	t.Helper()
	for _, m := range monitoring {
		if u.GroupVersionKind().Group != monitoringGroup || u.GetKind() != m.kind {
			continue
		}
		b, err := yaml.Marshal(u.Object)
		if err == nil {
			err = yaml.UnmarshalStrict(b, m.typ())
		}
		if err != nil {
			t.Errorf("%s: %s: %v", name, m.kind, err)
		}
	}
}
