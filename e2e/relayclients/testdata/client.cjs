// Reads and watches with the JavaScript client; the argument is a kubeconfig.
async function main() {
  const k8s = await import(require.resolve('@kubernetes/client-node'));
  const config = new k8s.KubeConfig();
  config.loadFromFile(process.argv[2]);
  const core = config.makeApiClient(k8s.CoreV1Api);
  const pods = await core.listNamespacedPod({ namespace: 'shop', labelSelector: 'app=web' });
  const widgets = await config.makeApiClient(k8s.CustomObjectsApi).listClusterCustomObject({ group: 'demo.informctl.dev', version: 'v1', plural: 'widgets' });
  let refused = 0;
  try {
    await core.deleteNamespacedPod({ namespace: 'shop', name: 'web-0' });
  } catch (e) {
    refused = e.code;
  }
  const everything = (await core.listNamespacedPod({ namespace: 'shop' })).metadata.resourceVersion;
  console.log(JSON.stringify({
    pods: pods.items.map((p) => p.metadata.name).sort(),
    phase: (await core.readNamespacedPod({ namespace: 'shop', name: 'web-0' })).status.phase,
    widgets: widgets.items.length,
    version: (await config.makeApiClient(k8s.VersionApi).getCode()).gitVersion,
    refused,
  }));
  await new k8s.Watch(config).watch('/api/v1/namespaces/shop/pods', { resourceVersion: everything },
    (type, pod) => console.log(type, pod.metadata.name, pod.metadata.labels?.changed),
    (err) => console.log('end', String(err)));
}
main().catch((err) => { console.error(err); process.exit(1); });
