package kubectl_test

// difference is a row of docs/kubectl.md.
type difference struct {
	row                        string // its first cell
	kubectl, informctl         string // the commands, with a semicolon between them
	lines                      int    // of a watch: how many are read
	changes                    string // what changes objects meanwhile
	fromKubectl, fromInformctl string // what they print
}

var differences = []difference{
	{
		row:       "No `-n`",
		kubectl:   "get configmaps -l order",
		informctl: "query configmaps -l order",
		fromKubectl: `NAME  DATA  AGE
settings  2  1s
`,
		fromInformctl: `NAMESPACE  NAME  DATA  AGE
default  settings  2  1s
other  settings  1  1s
`,
	},
	{
		row:       "No RESOURCE",
		kubectl:   "get -l order=4 -o name",
		informctl: "query -l order=4 -o name",
		fromKubectl: `You must specify the type of resource to get. Use "kubectl api-resources" for a complete list of supported resources.

error: Required resource not specified.
Use "kubectl explain <resource>" for a detailed description of that resource (e.g. kubectl explain pods).
See 'kubectl get -h' for help and examples
exit 1
`,
		fromInformctl: `configmap/settings
`,
	},
	{
		row:       "`-o table`",
		kubectl:   "get configmaps -n default -o table",
		informctl: "query configmaps -n default -o table",
		fromKubectl: `error: unable to match a printer suitable for the output format "table", allowed formats are: custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml
exit 1
`,
		fromInformctl: `NAME  DATA  AGE
settings  2  1s
`,
	},
	{
		row:       "Order of resources",
		kubectl:   "get serviceaccounts,configmaps -n default; get serviceaccounts,configmaps -n default -o name",
		informctl: "query serviceaccounts,configmaps -n default; query serviceaccounts,configmaps -n default -o name",
		fromKubectl: `NAME  AGE
serviceaccount/builder  1s

NAME  DATA  AGE
configmap/settings  2  1s
serviceaccount/builder
configmap/settings
`,
		fromInformctl: `NAME  DATA  AGE
configmap/settings  2  1s

NAME  AGE
serviceaccount/builder  1s
configmap/settings
serviceaccount/builder
`,
	},
	{
		row:       "Order of FlowSchemas",
		kubectl:   "get flowschemas -l app=test --no-headers",
		informctl: "query flowschemas -l app=test --no-headers",
		fromKubectl: `second  catch-all  9001  <none>  1s  False
first  catch-all  9002  <none>  1s  False
`,
		fromInformctl: `first  catch-all  9002  <none>  1s  False
second  catch-all  9001  <none>  1s  False
`,
	},
	{
		row:       "`--sort-by` of several resources",
		kubectl:   "get serviceaccounts,configmaps -A -l order --sort-by .metadata.name",
		informctl: "query serviceaccounts,configmaps -A -l order --sort-by .metadata.name",
		fromKubectl: `error: couldn't find any field with path "{.metadata.name}" in the list of objects
exit 1
`,
		fromInformctl: `NAMESPACE  NAME  DATA  AGE
default  configmap/settings  2  1s
other  configmap/settings  1  1s

NAMESPACE  NAME  AGE
default  serviceaccount/builder  1s
`,
	},
	{
		row:       "`--sort-by` of a field that nothing has",
		kubectl:   "get configmaps -A -l order --sort-by .data.none",
		informctl: "query configmaps -A -l order --sort-by .data.none",
		fromKubectl: `No resources found
`,
		fromInformctl: `NAMESPACE  NAME  DATA  AGE
default  settings  2  1s
other  settings  1  1s
informctl: nothing that is printed has the field "data.none" that --sort-by asks for
`,
	},
	{
		row:       "`--field-selector`",
		kubectl:   "get configmaps -n default --field-selector data.a=1",
		informctl: "query configmaps -n default --field-selector data.a=1",
		fromKubectl: `Error from server (BadRequest): Unable to find "/v1, Resource=configmaps" that match label selector "", field selector "data.a=1": "data.a" is not a known field selector: only "metadata.name", "metadata.namespace"
exit 1
`,
		fromInformctl: `NAME  DATA  AGE
settings  2  1s
`,
	},
	{
		row:       "NAME and `-l`",
		kubectl:   "get configmaps settings -n default -l order=2",
		informctl: "query configmaps settings -n default -l order=2",
		fromKubectl: `error: name cannot be provided when a selector is specified
exit 1
`,
		fromInformctl: `NAME  DATA  AGE
settings  2  1s
`,
	},
	{
		row:       "NAME in several namespaces",
		kubectl:   "get configmaps settings -A",
		informctl: "query configmaps settings -A; query configmaps settings -o jsonpath={.kind}",
		fromKubectl: `error: a resource cannot be retrieved by name across all namespaces
exit 1
`,
		fromInformctl: `NAMESPACE  NAME  DATA  AGE
default  settings  2  1s
other  settings  1  1s
List`,
	},
	{
		row:       "NAME twice",
		kubectl:   "get configmaps settings settings -n default",
		informctl: "query configmaps settings settings -n default",
		fromKubectl: `NAME  DATA  AGE
settings  2  1s
settings  2  1s
`,
		fromInformctl: `NAME  DATA  AGE
settings  2  1s
`,
	},
	{
		row:       "NAME that is not there",
		kubectl:   "get configmaps settings none -n default",
		informctl: "query configmaps settings none -n default",
		fromKubectl: `NAME  DATA  AGE
settings  2  1s
Error from server (NotFound): configmaps "none" not found
exit 1
`,
		fromInformctl: `NAME  DATA  AGE
settings  2  1s
informctl: configmaps "none" not found in namespace default of FILE
exit 1
`,
	},
	{
		row:       "Nothing there",
		kubectl:   "get pods -n default; get pods -n default -o name",
		informctl: "query pods -n default; query pods -n default -o name",
		fromKubectl: `No resources found in default namespace.
`,
		fromInformctl: `informctl: nothing found in FILE
informctl: nothing found in FILE
`,
	},
	{
		row:       "RESOURCE that is not there",
		kubectl:   "get gadgets",
		informctl: "query gadgets",
		fromKubectl: `error: the server doesn't have a resource type "gadgets"
exit 1
`,
		fromInformctl: `informctl: unknown resource "gadgets"; FILE holds others
exit 1
`,
	},
	{
		row:       "RESOURCE that several groups define",
		kubectl:   "get stages -n default -o name",
		informctl: "query stages -n default -o name",
		fromKubectl: `stage.a.example.com/first
`,
		fromInformctl: `stage.a.example.com/first
stage.b.example.com/second
`,
	},
	{
		row:       "ComponentStatuses",
		kubectl:   "get componentstatuses etcd-0 --no-headers",
		informctl: "query componentstatuses etcd-0 --no-headers",
		fromKubectl: `etcd-0  Healthy  ok
Warning: v1 ComponentStatus is deprecated in v1.19+
`,
		fromInformctl: `informctl: unknown resource "componentstatuses"; FILE holds others
exit 1
`,
	},
	{
		row:       "Wrong usage",
		kubectl:   "get configmaps -o bad",
		informctl: "query configmaps -o bad",
		fromKubectl: `error: unable to match a printer suitable for the output format "bad", allowed formats are: custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml
exit 1
`,
		fromInformctl: `informctl: unknown output format "bad"; there are 13, of which the closest are wide, yaml, name
See 'informctl query --help'.
exit 64
`,
	},
	{
		row:       "Flags of requests, and others",
		kubectl:   "get configmaps -n default --chunk-size 1; get horizontalpodautoscalers web -n default --subresource status; get --raw /readyz",
		informctl: "query configmaps -n default --chunk-size 1; query horizontalpodautoscalers web -n default --subresource status; query --raw /readyz",
		fromKubectl: `NAME  DATA  AGE
settings  2  1s
NAME  REFERENCE  TARGETS  MINPODS  MAXPODS  REPLICAS  AGE
web  Deployment/web  cpu: <unknown>/80%  1  3  0  1s
ok`,
		fromInformctl: `informctl: unknown flag: --chunk-size
See 'informctl query --help'.
exit 64
informctl: unknown flag: --subresource
See 'informctl query --help'.
exit 64
informctl: unknown flag: --raw
See 'informctl query --help'.
exit 64
`,
	},
	{
		row:           "Values of Secrets",
		kubectl:       "get secrets login -n default -o jsonpath={.data.password}",
		informctl:     "query secrets login -n default -o jsonpath={.data.password}; query secrets login -n default -o jsonpath={.data.password} --show-secrets",
		fromKubectl:   `MTIzNDU=`,
		fromInformctl: `REDACTEDMTIzNDU=`,
	},
	{
		row:       "Other versions of a kind",
		kubectl:   "get horizontalpodautoscalers.v1.autoscaling -n default",
		informctl: "query horizontalpodautoscalers -n default --db old.db",
		fromKubectl: `NAME  REFERENCE  TARGETS  MINPODS  MAXPODS  REPLICAS  AGE
web  Deployment/web  cpu: <unknown>/80%  1  3  0  1s
`,
		fromInformctl: `NAME  AGE
web  1s
informctl: as of 1s ago; nothing follows this file
`,
	},
	{
		row:       "Custom resources without their definition",
		kubectl:   "get widgets -n default --as reader",
		informctl: "query widgets -n default --db widgets.db",
		fromKubectl: `NAME  SIZE
small  small
`,
		fromInformctl: `NAME  AGE
small  1s
informctl: as of 1s ago; nothing follows this file
`,
	},
	{
		row:       "Metadata only",
		kubectl:   "get configmaps -n default",
		informctl: "query configmaps -n default --db metadata.db",
		fromKubectl: `NAME  DATA  AGE
settings  2  1s
`,
		fromInformctl: `NAME  AGE
settings  1s
informctl: as of 1s ago; nothing follows this file
`,
	},
	{
		row:       "How old it is",
		kubectl:   "get configmaps -n other",
		informctl: "query configmaps -n other --db copy.db",
		fromKubectl: `NAME  DATA  AGE
settings  1  1s
`,
		fromInformctl: `NAME  DATA  AGE
settings  1  1s
informctl: as of 1s ago; nothing follows this file
`,
	},
	{
		row:       "`watch`",
		kubectl:   "get configmaps -n default --watch",
		informctl: "watch configmaps -n default --initial",
		lines:     2,
		fromKubectl: `NAME  DATA  AGE
settings  2  1s
`,
		fromInformctl: `EVENT  NAME  DATA  AGE
ADDED  settings  2  1s
`,
	},
	{
		row:       "What `watch` prints first",
		kubectl:   "get serviceaccounts -n default --watch",
		informctl: "watch serviceaccounts -n default",
		lines:     2,
		changes:   "annotate serviceaccounts builder -n default --overwrite changed=%d",
		fromKubectl: `NAME  AGE
builder  1s
`,
		fromInformctl: `EVENT  NAME  AGE
MODIFIED  builder  1s
`,
	},
	{
		row:       "`watch` of several resources",
		kubectl:   "get configmaps,pods -n default --watch",
		informctl: "watch configmaps,pods -n default --initial",
		lines:     2,
		fromKubectl: `error: you may only specify a single resource type
exit 1
`,
		fromInformctl: `EVENT  NAME  AGE
ADDED  configmap/settings  1s
`,
	},
	{
		row:       "`-w -o json`",
		kubectl:   "get configmaps settings -n default -w -o json",
		informctl: "query configmaps settings -n default -w -o json",
		lines:     1,
		fromKubectl: `{
`,
		fromInformctl: `{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"creationTimestamp":"...","labels":{"order":"2"},"name":"settings","namespace":"default","resourceVersion":"...","uid":"..."}}
`,
	},
	{
		row:       "`-w -o yaml`",
		kubectl:   "get configmaps settings -n default -w -o yaml",
		informctl: "query configmaps settings -n default -w -o yaml",
		lines:     1,
		fromKubectl: `apiVersion: v1
`,
		fromInformctl: `---
`,
	},
	{
		row:       "`-w -o jsonpath`, `-w -o go-template`",
		kubectl:   `get serviceaccounts builder -n default -w -o jsonpath={"\n"}{.metadata.name}`,
		informctl: `query serviceaccounts builder -n default -w -o jsonpath={"\n"}{.metadata.name}`,
		lines:     3,
		changes:   "annotate serviceaccounts builder -n default --overwrite changed=%d",
		fromKubectl: `
builder
builder
`,
		fromInformctl: `
builder

`,
	},
	{
		row:       "`watch -o json`",
		kubectl:   "get configmaps -n default --watch --output-watch-events -o json",
		informctl: "watch configmaps -n default --initial -o json",
		lines:     1,
		fromKubectl: `{"type":"ADDED","object":{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"creationTimestamp":"...","labels":{"order":"2"},"managedFields":[{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{".":{},"f:order":{}}}},"manager":"kubectl-create","operation":"Update","time":"..."}],"name":"settings","namespace":"default","resourceVersion":"...","uid":"..."}}}
`,
		fromInformctl: `{"type":"ADDED","object":{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"creationTimestamp":"...","labels":{"order":"2"},"name":"settings","namespace":"default","resourceVersion":"...","uid":"..."}}}
`,
	},
	{
		row:       "`history`",
		kubectl:   "history configmaps -n other",
		informctl: "history configmaps -n other",
		fromKubectl: `error: unknown command "history" for "kubectl"
exit 1
`,
		fromInformctl: `TIME  WHAT  OBJECT  WHO  CHANGES
10:02:03  updated  configmaps other/settings  kubectl-label  metadata.labels.order: "3" -> "4"
`,
	},
	{
		row:       "`history` of a NAME that is not there",
		kubectl:   "get configmaps none -n default",
		informctl: "history configmaps none -n default",
		fromKubectl: `Error from server (NotFound): configmaps "none" not found
exit 1
`,
		fromInformctl: `informctl: nothing found in FILE
`,
	},
}
