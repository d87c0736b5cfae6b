"""Checks the chart: lint, what it renders for each file of values in picus/ci, and whether Picus accepts that.

usage: check.py PICUS

PICUS is the built program. helm must be found in the path. Every rendered object must be valid for the oldest and the newest
version of Kubernetes that the validator knows (from 1.29 on); the environment of the rendered container must be accepted by
`picus check --offline`, with stand-ins for secrets.
"""

import pathlib
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

CHART = pathlib.Path(__file__).parent / "picus"
# Kinds of others, of which the validator knows nothing.
OF_OTHERS = {"ServiceMonitor", "PrometheusRule"}
OLDEST = "1.29"
# A token at Hetzner has 64 letters; for all else that is as good as anything.
SECRET = "0123456789abcdef" * 4


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def valid(rendered, versions, values):
    for document in yaml.safe_load_all(rendered):
        if document is None or document["kind"] in OF_OTHERS:
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                sys.exit(f"{values}: {document['kind']} {document['metadata']['name']} for {version}: {error.message}")


def environment(rendered, folder):
    """Of the container; secrets and files are stand-ins."""
    [deployment] = [one for one in yaml.safe_load_all(rendered) if one and one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    own = {}
    for secret in yaml.safe_load_all(rendered):
        if secret and secret["kind"] == "Secret":
            own[secret["metadata"]["name"]] = secret["stringData"]
    variables = {}
    for entry in container["env"]:
        name = entry["name"]
        if name in variables:
            sys.exit(f"{name} is set twice")
        if "valueFrom" in entry:
            reference = entry["valueFrom"]["secretKeyRef"]
            variables[name] = own.get(reference["name"], {}).get(reference["key"], SECRET)
        elif name.endswith("_FILE") and name != "PICUS_WOODPECKER_CA_FILE":
            file = folder / name
            file.write_text(SECRET, encoding="utf-8")
            variables[name] = str(file)
        else:
            variables[name] = entry["value"]
    return variables


def main():
    picus = pathlib.Path(sys.argv[1]).resolve()
    versions = [OLDEST, kubernetes_validate.latest_version()]
    for values in sorted((CHART / "ci").glob("*.yaml")):
        run("helm", "lint", "--strict", "--values", values, CHART)
        for version in versions:
            rendered = run("helm", "template", "ci", CHART, "--values", values, "--kube-version", version)
            valid(rendered, [version], values.name)
        with tempfile.TemporaryDirectory() as folder:
            variables = environment(rendered, pathlib.Path(folder))
            told = run(picus, "check", "--offline", env=variables)
        if "warn" in told:
            sys.exit(f"{values.name}: Picus accepts it with a warning\n{told}")
        print(f"{values.name}: {len(variables)} variables are accepted; valid for Kubernetes {' and '.join(versions)}")


main()
