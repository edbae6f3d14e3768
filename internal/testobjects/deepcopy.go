package testobjects

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject implements runtime.Object.
func (w *TypedWidget) DeepCopyObject() runtime.Object {
	if w == nil {
		return nil
	}
	return w.DeepCopy()
}

// DeepCopy returns a copy that shares nothing with w. It returns nil for nil.
func (w *TypedWidget) DeepCopy() *TypedWidget {
	if w == nil {
		return nil
	}
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Selector = maps.Clone(w.Spec.Selector)
	c.Spec.Parts = slices.Clone(w.Spec.Parts)
	for k := range c.Spec.Parts {
		part := &c.Spec.Parts[k]
		part.Position = slices.Clone(part.Position)
		part.Tags = slices.Clone(part.Tags)
	}
	c.Status.Conditions = slices.Clone(w.Status.Conditions)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *TypedWidgetList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = slices.Clone(l.Items)
	for k := range c.Items {
		c.Items[k] = *l.Items[k].DeepCopy()
	}
	return &c
}
