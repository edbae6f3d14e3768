package table

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

var (
	mutatingWebhooks   = kindOf(mutatingWebhookCells, always("Name"), ofType("integer", always("Webhooks")), always("Age"))
	validatingWebhooks = kindOf(validatingWebhookCells, always("Name"), ofType("integer", always("Webhooks")), always("Age"))
)

func mutatingWebhookCells(c *admissionv1.MutatingWebhookConfiguration, now time.Time) []any {
	return []any{c.Name, int64(len(c.Webhooks)), age(c.CreationTimestamp, now)}
}

func validatingWebhookCells(c *admissionv1.ValidatingWebhookConfiguration, now time.Time) []any {
	return []any{c.Name, int64(len(c.Webhooks)), age(c.CreationTimestamp, now)}
}

var (
	mutatingPolicy   = kindOf(mutatingPolicyCells, always("Name"), ofType("integer", always("Mutations")), always("ParamKind", "Age"))
	validatingPolicy = kindOf(validatingPolicyCells, always("Name"), ofType("integer", always("Validations")), always("ParamKind", "Age"))
)

func mutatingPolicyCells(p *admissionv1.MutatingAdmissionPolicy, now time.Time) []any {
	return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), age(p.CreationTimestamp, now)}
}

func validatingPolicyCells(p *admissionv1.ValidatingAdmissionPolicy, now time.Time) []any {
	return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), age(p.CreationTimestamp, now)}
}

var (
	mutatingPolicyBinding   = kindOf(mutatingPolicyBindingCells, always("Name", "PolicyName", "ParamRef", "Age"))
	validatingPolicyBinding = kindOf(validatingPolicyBindingCells, always("Name", "PolicyName", "ParamRef", "Age"))
)

func mutatingPolicyBindingCells(b *admissionv1.MutatingAdmissionPolicyBinding, now time.Time) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), age(b.CreationTimestamp, now)}
}

func validatingPolicyBindingCells(b *admissionv1.ValidatingAdmissionPolicyBinding, now time.Time) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), age(b.CreationTimestamp, now)}
}

// paramKind returns the kind of a policy's parameters.
func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return unset
	}
	return k.APIVersion + "/" + k.Kind
}

// paramRef returns which parameters a binding has. Without a namespace they may be in
// any, or in none: the scope of their kind is not known.
func paramRef(r *admissionv1.ParamRef) string {
	switch {
	case r == nil:
		return unset
	case r.Name != "":
		return or(r.Namespace, "*") + "/" + r.Name
	case r.Selector != nil:
		return r.Selector.String()
	}
	return unset
}
