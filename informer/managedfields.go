package informer

import (
	"reflect"
	"regexp"
	"runtime"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// StripManagedFields is a [cache.TransformFunc] that removes the managedFields, which are
// more than half of many objects. An informer recognizes it, and controller-runtime's
// cache.TransformStripManagedFields, as long as no other transform is around it: it then
// needs no Options.TransformVersion for a warm start, and removes the fields from the
// bytes that the API server sends, without decoding the object.
func StripManagedFields(obj any) (any, error) {
	// An empty list is not set again: other goroutines may read obj.
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// strippedVersion is the transform version of stored objects without managedFields.
const strippedVersion = "StripManagedFields"

// controllerRuntimeCache matches the files of controller-runtime's package cache, built
// from the module cache, with -trimpath or from a vendor folder.
var controllerRuntimeCache = regexp.MustCompile(`sigs\.k8s\.io/controller-runtime(@[^/]+)?/pkg/cache/[^/]+\.go$`)

// stripsManagedFields reports whether a transform removes the managedFields and does
// nothing else.
func stripsManagedFields(transform cache.TransformFunc) bool {
	if transform == nil {
		return false
	}
	pc := reflect.ValueOf(transform).Pointer()
	if pc == reflect.ValueOf(StripManagedFields).Pointer() {
		return true
	}
	// controller-runtime's is a closure, which has the name of the function that returns
	// it, in whichever package that was inlined.
	fn := runtime.FuncForPC(pc)
	file, _ := fn.FileLine(pc)
	return strings.Contains(fn.Name(), ".TransformStripManagedFields.func") && controllerRuntimeCache.MatchString(file)
}

// transformVersion returns what identifies a transform: Options.TransformVersion, or the
// version of one that is recognized. The version of a Factory is that of all transforms
// which are not recognized. A Factory's informer without a transform has no version, also
// if FactoryOptions.Configure sets one.
func (o *Options) transformVersion(transform cache.TransformFunc) string {
	switch {
	case o.versionOfAll != nil && transform == nil:
		return ""
	case (o.TransformVersion == "" || o.TransformVersion == ptr.Deref(o.versionOfAll, "")) && stripsManagedFields(transform):
		return strippedVersion
	}
	return o.TransformVersion
}
