package soak_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/testobjects"
)

// clients are the clients that a controller would make: typed clients with protobuf, and
// a dynamic one.
type clients struct {
	http    *http.Client
	typed   *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
}

func newClients(cfg *rest.Config) (c clients, err error) {
	if c.http, err = rest.HTTPClientFor(cfg); err != nil {
		return c, err
	}
	protobuf := rest.CopyConfig(cfg)
	protobuf.ContentType = runtime.ContentTypeProtobuf
	if c.typed, err = kubernetes.NewForConfigAndClient(protobuf, c.http); err != nil {
		return c, err
	}
	c.dynamic, err = dynamic.NewForConfigAndClient(cfg, c.http)
	return c, err
}

// collection is one resource. The informers of two have the dynamic client's form.
type collection struct {
	resource schema.GroupVersionResource
	example  runtime.Object
	object   func(i int) any // a new object without a name
}

var collections = []collection{
	{corev1.SchemeGroupVersion.WithResource("pods"), &corev1.Pod{}, func(i int) any {
		pod := testobjects.Pod(i, 1)
		pod.Status = corev1.PodStatus{}
		return pod
	}},
	{corev1.SchemeGroupVersion.WithResource("configmaps"), &corev1.ConfigMap{}, func(i int) any { return testobjects.ConfigMap(i, 1) }},
	{corev1.SchemeGroupVersion.WithResource("services"), &corev1.Service{}, func(i int) any {
		return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": fmt.Sprint(i)}}}
	}},
	{appsv1.SchemeGroupVersion.WithResource("deployments"), unstructuredOf(appsv1.SchemeGroupVersion.WithKind("Deployment")), func(i int) any {
		labels := map[string]string{"app": fmt.Sprint(i)}
		template := corev1.PodTemplateSpec{Spec: testobjects.Pod(i, 1).Spec}
		template.Labels, template.Spec.NodeName = labels, ""
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	}},
	{testobjects.WidgetResource, unstructuredOf(testobjects.WidgetKind), func(i int) any { return testobjects.Widget(i, 1).Object }},
}

func unstructuredOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

func (c collection) name() string { return c.resource.GroupResource().String() }

func (c collection) listWatch(from clients) cache.ListerWatcher {
	if _, ok := c.example.(*unstructured.Unstructured); !ok {
		return cache.NewListWatchFromClient(from.typed.CoreV1().RESTClient(), c.resource.Resource, "", fields.Everything())
	}
	r := from.dynamic.Resource(c.resource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.Watch(ctx, o)
		},
	}
}

// make returns an object to be created.
func (c collection) make(i int, namespace, name string) (*unstructured.Unstructured, error) {
	b, err := json.Marshal(c.object(i))
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(b, &u.Object); err != nil {
		return nil, err
	}
	testobjects.ClearServerFields(u)
	kind := map[string]string{"pods": "Pod", "configmaps": "ConfigMap", "services": "Service", "deployments": "Deployment", "widgets": "Widget"}
	u.SetGroupVersionKind(c.resource.GroupVersion().WithKind(kind[c.resource.Resource]))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u, nil
}
