package testobjects

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CRDResource is the resource with which the object of [WidgetCRD] is created.
var CRDResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// WidgetCRD returns the CustomResourceDefinition widgets.demo.informctl.dev: version v1,
// namespaced, with a structural schema and a status subresource. It has no fields that an
// API server sets.
func WidgetCRD() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   object{"name": WidgetResource.Resource + "." + WidgetKind.Group},
		"spec": object{
			"group": WidgetKind.Group,
			"scope": "Namespaced",
			"names": object{"kind": WidgetKind.Kind, "listKind": "WidgetList", "plural": WidgetResource.Resource, "singular": "widget"},
			"versions": []any{object{
				"name": WidgetKind.Version, "served": true, "storage": true,
				"subresources": object{"status": object{}},
				"schema":       object{"openAPIV3Schema": widgetSchema()},
			}},
		},
	}}
}

// object is a JSON object. It is an alias because Unstructured accepts no other type.
type object = map[string]any

func widgetSchema() object {
	part := record(object{
		"name": scalar("string"), "material": scalar("string"), "grams": scalar("integer"), "position": list(scalar("integer")),
		"tags": list(scalar("string")), "supplier": scalar("string"), "digest": scalar("string"),
	}, "name", "material", "grams")
	condition := record(object{
		"type": scalar("string"), "status": scalar("string"), "observedGeneration": scalar("integer"),
		"lastTransitionTime": object{"type": "string", "format": "date-time"}, "reason": scalar("string"), "message": scalar("string"),
	}, "type", "status")
	return record(object{
		"spec": record(object{
			"color": scalar("string"), "size": scalar("integer"), "tier": scalar("string"), "ratio": scalar("number"), "paused": scalar("boolean"),
			"selector": object{"type": "object", "additionalProperties": scalar("string")},
			"parts":    list(part),
		}, "color", "size"),
		"status": record(object{
			"observedGeneration": scalar("integer"), "phase": scalar("string"), "readyParts": scalar("integer"), "conditions": list(condition),
		}),
	}, "spec")
}

func scalar(kind string) object { return object{"type": kind} }

func list(items object) object { return object{"type": "array", "items": items} }

func record(properties object, required ...string) object {
	s := object{"type": "object", "properties": properties}
	for _, name := range required {
		names, _ := s["required"].([]any)
		s["required"] = append(names, name)
	}
	return s
}
