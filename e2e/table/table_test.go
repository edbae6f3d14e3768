package table_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/table"
)

// resources are the resources whose tables are compared, and the kinds of their objects.
var resources = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "configmaps"}:             "ConfigMap",
	{Version: "v1", Resource: "endpoints"}:              "Endpoints",
	{Version: "v1", Resource: "events"}:                 "Event",
	{Version: "v1", Resource: "limitranges"}:            "LimitRange",
	{Version: "v1", Resource: "namespaces"}:             "Namespace",
	{Version: "v1", Resource: "nodes"}:                  "Node",
	{Version: "v1", Resource: "persistentvolumeclaims"}: "PersistentVolumeClaim",
	{Version: "v1", Resource: "persistentvolumes"}:      "PersistentVolume",
	{Version: "v1", Resource: "pods"}:                   "Pod",
	{Version: "v1", Resource: "podtemplates"}:           "PodTemplate",
	{Version: "v1", Resource: "replicationcontrollers"}: "ReplicationController",
	{Version: "v1", Resource: "resourcequotas"}:         "ResourceQuota",
	{Version: "v1", Resource: "secrets"}:                "Secret",
	{Version: "v1", Resource: "serviceaccounts"}:        "ServiceAccount",
	{Version: "v1", Resource: "services"}:               "Service",

	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"}:         "MutatingAdmissionPolicy",
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"}:   "MutatingAdmissionPolicyBinding",
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}:     "MutatingWebhookConfiguration",
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}:       "ValidatingAdmissionPolicy",
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}: "ValidatingAdmissionPolicyBinding",
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}:   "ValidatingWebhookConfiguration",

	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinition",

	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}: "APIService",

	{Group: "apps", Version: "v1", Resource: "controllerrevisions"}: "ControllerRevision",
	{Group: "apps", Version: "v1", Resource: "daemonsets"}:          "DaemonSet",
	{Group: "apps", Version: "v1", Resource: "deployments"}:         "Deployment",
	{Group: "apps", Version: "v1", Resource: "replicasets"}:         "ReplicaSet",
	{Group: "apps", Version: "v1", Resource: "statefulsets"}:        "StatefulSet",

	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}: "HorizontalPodAutoscaler",

	{Group: "batch", Version: "v1", Resource: "cronjobs"}: "CronJob",
	{Group: "batch", Version: "v1", Resource: "jobs"}:     "Job",

	{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"}: "CertificateSigningRequest",
	{Group: "certificates.k8s.io", Version: "v1", Resource: "clustertrustbundles"}:        "ClusterTrustBundle",
	{Group: "certificates.k8s.io", Version: "v1", Resource: "podcertificaterequests"}:     "PodCertificateRequest",

	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}: "Lease",

	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}: "EndpointSlice",

	{Group: "events.k8s.io", Version: "v1", Resource: "events"}: "Event",

	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"}:                 "FlowSchema",
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"}: "PriorityLevelConfiguration",

	{Group: "networking.k8s.io", Version: "v1", Resource: "ingressclasses"}:  "IngressClass",
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}:       "Ingress",
	{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"}:     "IPAddress",
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}: "NetworkPolicy",
	{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"}:    "ServiceCIDR",

	{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}: "RuntimeClass",

	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}: "PodDisruptionBudget",

	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}: "ClusterRoleBinding",
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}:        "ClusterRole",
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}:        "RoleBinding",
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}:               "Role",

	{Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"}: "DeviceTaintRule",
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}:   "ResourceClaim",
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}:   "ResourceSlice",

	{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}: "PriorityClass",

	{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"}:              "CSIDriver",
	{Group: "storage.k8s.io", Version: "v1", Resource: "csinodes"}:                "CSINode",
	{Group: "storage.k8s.io", Version: "v1", Resource: "csistoragecapacities"}:    "CSIStorageCapacity",
	{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}:          "StorageClass",
	{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments"}:       "VolumeAttachment",
	{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattributesclasses"}: "VolumeAttributesClass",

	{Group: "storagemigration.k8s.io", Version: "v1", Resource: "storageversionmigrations"}: "StorageVersionMigration",
}

// TestTables compares the tables of all kinds with those of the server.
func TestTables(t *testing.T) {
	w := newWorld(t)
	w.load("testdata/*.yaml")
	w.load("testdata/apiservices/*.yaml")
	w.loadCertificates()
	for gvr, kind := range resources {
		t.Run(gvr.GroupResource().String(), func(t *testing.T) {
			if w.created[gvr.GroupResource().String()] == 0 && kind != "Event" {
				t.Error("testdata has no object of this resource")
			}
			k, ok := table.Of(gvr.GroupVersion().WithKind(kind))
			if !ok {
				t.Fatalf("no columns for %s", kind)
			}
			w.in(t).compare(gvr, k)
		})
	}
}

func (w *world) in(t *testing.T) *world {
	c := *w
	c.T = t
	return &c
}

// answer is a table of the server.
type answer struct {
	columns       []table.Column
	rows          []row
	before, after time.Time // the server has made it between them
}

// row is a row of the server and the object that it is made of.
type row struct {
	cells  []any
	object *unstructured.Unstructured
}

// ask asks the server for its table of all objects of a resource.
func (w *world) ask(gvr schema.GroupVersionResource) (a answer) {
	w.Helper()
	path := "/apis/" + gvr.Group
	if gvr.Group == "" {
		path = "/api"
	}
	a.before = time.Now()
	body, err := w.server.Get().AbsPath(path, gvr.Version, gvr.Resource).Param("includeObject", "Object").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(w.Context())
	a.after = time.Now()
	if err != nil {
		w.Fatal(err)
	}
	content := map[string]any{} // a Table would have floats for the integers in cells
	if err := utiljson.Unmarshal(body, &content); err != nil {
		w.Fatal(err)
	}
	for _, c := range content["columnDefinitions"].([]any) {
		c := c.(map[string]any)
		a.columns = append(a.columns, table.Column{
			Name: c["name"].(string), Type: c["type"].(string), Format: c["format"].(string), Priority: int32(c["priority"].(int64)),
		})
	}
	rows, _ := content["rows"].([]any)
	for _, r := range rows {
		r := r.(map[string]any)
		a.rows = append(a.rows, row{r["cells"].([]any), &unstructured.Unstructured{Object: r["object"].(map[string]any)}})
	}
	return a
}

// compare compares the server's table of all objects of a resource with that of k, column
// by column and cell by cell, for the objects as they are and as client-go's types.
func (w *world) compare(gvr schema.GroupVersionResource, k table.Kind) {
	w.Helper()
	a := w.ask(gvr)
	if len(a.rows) == 0 {
		w.Fatalf("the server has no %s: the test proves nothing", gvr.Resource)
	}
	if diff := cmp.Diff(a.columns, k.Columns()); diff != "" {
		w.Fatalf("columns (-server +ours):\n%s", diff)
	}
	for _, r := range a.rows {
		for _, obj := range forms(w.T, r.object) {
			at := fmt.Sprintf("%s %s/%s as %T", gvr.Resource, r.object.GetNamespace(), r.object.GetName(), obj)
			w.compareRow(at, a, r, func(now time.Time) []any {
				cells, err := k.Cells(obj, now)
				if err != nil {
					w.Fatalf("%s: %v", at, err)
				}
				return cells
			})
		}
	}
	w.Logf("%s: %d rows of %d cells", gvr.GroupResource(), len(a.rows), len(a.columns))
}

// compareRow compares the cells of an object. A cell that is an age, or has one in it, is
// equal if it is at a moment at which the server can have made it.
func (w *world) compareRow(at string, a answer, r row, cells func(time.Time) []any) {
	w.Helper()
	var ours [][]any
	for now := a.before; now.Before(a.after); now = now.Add(time.Second / 2) {
		ours = append(ours, cells(now))
	}
	ours = append(ours, cells(a.after))
	if len(ours[0]) != len(r.cells) {
		w.Fatalf("%s: %d cells, the server has %d", at, len(ours[0]), len(r.cells))
	}
	for i, cell := range r.cells {
		name := "a cell that is not printed"
		if i < len(a.columns) {
			name = a.columns[i].Name
		}
		if !slices.ContainsFunc(ours, func(cells []any) bool { return reflect.DeepEqual(sent(cells[i]), cell) }) {
			w.Errorf("%s, %s: %#v, the server has %#v", at, name, ours[0][i], cell)
		}
	}
}

// sent returns a cell as it is after it was sent as JSON, which does not tell 7.0 from 7.
func sent(cell any) any {
	if f, ok := cell.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	return cell
}

// forms returns an object as it is and, if client-go knows its kind, in its type.
func forms(t *testing.T, u *unstructured.Unstructured) []runtime.Object {
	t.Helper()
	typed, err := scheme.Scheme.New(u.GroupVersionKind())
	if runtime.IsNotRegisteredError(err) {
		return []runtime.Object{u}
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed)
	}
	if err != nil {
		t.Fatalf("%s %q: %v", strings.ToLower(u.GetKind()), u.GetName(), err)
	}
	return []runtime.Object{u, typed}
}
