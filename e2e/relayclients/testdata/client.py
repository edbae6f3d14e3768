"""Reads and watches with the Python client; the argument is a kubeconfig."""
import json
import sys

from kubernetes import client, config, watch

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
pods = core.list_namespaced_pod("shop", label_selector="app=web")
widgets = client.CustomObjectsApi().list_cluster_custom_object("demo.informctl.dev", "v1", "widgets")
try:
    core.delete_namespaced_pod("web-0", "shop")
    refused = 0
except client.ApiException as e:
    refused = e.status
everything = core.list_namespaced_pod("shop").metadata.resource_version
print(json.dumps({
    "pods": sorted(p.metadata.name for p in pods.items),
    "phase": core.read_namespaced_pod("web-0", "shop").status.phase,
    "widgets": len(widgets["items"]),
    "version": client.VersionApi().get_code().git_version,
    "refused": refused,
}), flush=True)
for event in watch.Watch().stream(core.list_namespaced_pod, "shop", resource_version=everything):
    pod = event["object"]
    print(event["type"], pod.metadata.name, (pod.metadata.labels or {}).get("changed"), flush=True)
