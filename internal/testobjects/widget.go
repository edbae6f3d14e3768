package testobjects

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// WidgetKind is the kind of the custom resource that [WidgetCRD] defines.
	WidgetKind = schema.GroupVersionKind{Group: "demo.informctl.dev", Version: "v1", Kind: "Widget"}
	// WidgetResource is the resource of WidgetKind.
	WidgetResource = WidgetKind.GroupVersion().WithResource("widgets")
)

// TypedWidget is the Go type of a Widget, as a user of a custom resource writes it.
type TypedWidget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WidgetSpec   `json:"spec"`
	Status WidgetStatus `json:"status,omitempty"`
}

// TypedWidgetList is a list of widgets.
type TypedWidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TypedWidget `json:"items"`
}

// WidgetSpec is the desired state of a widget.
type WidgetSpec struct {
	Color    string            `json:"color"`
	Size     int64             `json:"size"`
	Tier     string            `json:"tier,omitempty"`
	Ratio    float64           `json:"ratio,omitempty"`
	Paused   bool              `json:"paused,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
	Parts    []WidgetPart      `json:"parts,omitempty"`
}

// WidgetPart is one part of a widget.
type WidgetPart struct {
	Name     string   `json:"name"`
	Material string   `json:"material"`
	Grams    int64    `json:"grams"`
	Position []int64  `json:"position,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Supplier string   `json:"supplier,omitempty"`
	Digest   string   `json:"digest,omitempty"`
}

// WidgetStatus is the observed state of a widget.
type WidgetStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Phase              string             `json:"phase,omitempty"`
	ReadyParts         int64              `json:"readyParts,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// NewTypedWidget returns widget i, about 5 KB as JSON.
func NewTypedWidget(i int, seed int64) *TypedWidget {
	s := newSource(streamWidget, i, seed)
	w := &TypedWidget{ObjectMeta: s.objectMeta(i, namespaceOf(i), fmt.Sprintf("widget-%06d", i))}
	w.SetGroupVersionKind(WidgetKind)
	w.Generation = 1
	w.Labels = map[string]string{"app": domains[i%len(domains)], "team": s.pick(teams), "tier": s.pick(tiers)}
	w.Spec = WidgetSpec{
		Color:    s.pick([]string{"red", "green", "blue", "black", "white"}),
		Size:     s.Int64N(1 << 40),
		Tier:     s.pick(tiers),
		Ratio:    float64(s.IntN(1000)) / 8,
		Paused:   s.IntN(10) == 0,
		Selector: map[string]string{"app": s.pick(domains), "role": s.pick(roles)},
	}
	for n := range 14 + s.IntN(5) {
		w.Spec.Parts = append(w.Spec.Parts, WidgetPart{
			Name:     fmt.Sprintf("%s-%02d", s.pick(roles), n),
			Material: s.pick([]string{"steel", "brass", "oak", "glass", "carbon"}),
			Grams:    1 + s.Int64N(100_000),
			Position: []int64{s.Int64N(1000), s.Int64N(1000), s.Int64N(1000)},
			Tags:     []string{s.pick(tiers), s.pick(teams), s.pick(domains)},
			Supplier: s.pick(domains) + ".suppliers.example.com",
			Digest:   "sha256:" + s.hex(64),
		})
	}
	w.Status = s.widgetStatus(w)
	w.ManagedFields = widgetManagedFields(w)
	return w
}

func (s source) widgetStatus(w *TypedWidget) WidgetStatus {
	at := s.after(w.CreationTimestamp, time.Hour)
	return WidgetStatus{
		ObservedGeneration: 1,
		Phase:              "Assembled",
		ReadyParts:         int64(len(w.Spec.Parts)),
		Conditions: []metav1.Condition{
			{
				Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: at,
				Reason: "AllPartsReady", Message: fmt.Sprintf("%d parts are in place", len(w.Spec.Parts)),
			},
			{
				Type: "Progressing", Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: at,
				Reason: "Idle", Message: "nothing to do",
			},
		},
	}
}

func widgetManagedFields(w *TypedWidget) []metav1.ManagedFieldsEntry {
	var spec, status fieldSet
	version := WidgetKind.GroupVersion().String()
	spec.within("f:metadata", func() {
		spec.open("labels", func() { spec.leaf("app", "team", "tier") })
	})
	spec.open("spec", func() {
		spec.leaf("color", "parts", "paused", "ratio")
		spec.open("selector", func() { spec.leaf("app", "role") })
		spec.leaf("size", "tier")
	})
	status.open("status", func() { status.leaf("conditions", "observedGeneration", "phase", "readyParts") })
	return []metav1.ManagedFieldsEntry{
		spec.entry("kubectl-create", version, "", w.CreationTimestamp),
		status.entry("widget-controller", version, "status", w.Status.Conditions[0].LastTransitionTime),
	}
}

// Widget returns the same widget as [NewTypedWidget], as unstructured content.
func Widget(i int, seed int64) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(NewTypedWidget(i, seed))
	if err != nil {
		panic(err) // The type has only fields that convert.
	}
	return &unstructured.Unstructured{Object: content}
}

// AddToScheme registers TypedWidget and its list as the Go types of WidgetKind.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(WidgetKind, &TypedWidget{})
	scheme.AddKnownTypeWithName(WidgetKind.GroupVersion().WithKind("WidgetList"), &TypedWidgetList{})
	metav1.AddToGroupVersion(scheme, WidgetKind.GroupVersion())
	return nil
}
