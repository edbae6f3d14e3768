package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto sets out to a copy that shares nothing with g.
func (g *Greeter) DeepCopyInto(out *Greeter) {
	*out = *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(g.Status.Conditions)
}

// DeepCopy returns a copy that shares nothing with g. It returns nil for nil.
func (g *Greeter) DeepCopy() *Greeter {
	if g == nil {
		return nil
	}
	out := &Greeter{}
	g.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (g *Greeter) DeepCopyObject() runtime.Object {
	if g == nil {
		return nil
	}
	return g.DeepCopy()
}

// DeepCopyInto sets out to a copy that shares nothing with l.
func (l *GreeterList) DeepCopyInto(out *GreeterList) {
	*out = *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
}

// DeepCopyObject implements runtime.Object.
func (l *GreeterList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := &GreeterList{}
	l.DeepCopyInto(out)
	return out
}
