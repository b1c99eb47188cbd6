"""Checks that the accompanying files agree with the program and with each other.

Metrics of alerts and dashboard exist, and every alert has a test; configurations and variables are
accepted by the program; what Kubernetes and Compose refer to exists; the SBOM follows its schema.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cyclonedx
import jsonschema
import referencing
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
HEADWORKS = os.environ["HEADWORKS"]
TOKEN = "0123456789abcdef0123456789abcdef"
problems = []


def expect(holds, text):
    if not holds:
        problems.append(text)


def load(path):
    return yaml.safe_load((PACKAGING / path).read_text())


def declared_metrics():
    """Returns the metrics that the admin listener shows, with their kinds."""
    found = {}
    for path in ROOT.glob("crates/*/src/**/*.rs"):
        # The shown ones have our prefix, and examples in comments are none of them.
        code = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M)
        found |= {name: kind for kind, name in re.findall(r'Family::(\w+)\(\s*"(headworks_\w+)"', code)}
    return found


def asked_metrics(expression):
    return set(re.findall(r"\bheadworks_\w+", expression))


def check_metrics():
    known = declared_metrics()
    expect(len(known) > 30, f"only {len(known)} metrics are declared")
    series = set(known)
    for name, kind in known.items():
        if kind == "histogram":
            series |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    rules = [rule for group in load("alerts.yaml")["groups"] for rule in group["rules"]]
    asked = {f"alert {rule['alert']}": rule["expr"] for rule in rules}
    for panel in json.loads((PACKAGING / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", []):
            asked[f"panel {panel['title']}"] = target["expr"]
    expect(len(asked) > 30, f"only {len(asked)} alerts and panels")
    for where, expression in asked.items():
        for name in asked_metrics(expression) - series:
            problems.append(f"{where}: `{name}` is not a metric of ours")
        for name in asked_metrics(expression) & set(known):
            expect(known[name] != "histogram", f"{where}: `{name}` is a histogram")
            rated = re.search(rf"\b(rate|increase)\({name}\b", expression)
            expect(not (rated and known[name] == "gauge"), f"{where}: rate of the gauge `{name}`")
    tests = (ROOT / "tests/packaging/alerts.yaml").read_text()
    for rule in rules:
        expect(re.search(rf"\b{rule['alert']}\b", tests), f"alert {rule['alert']} has no test")
        expect({"summary", "description"} <= set(rule["annotations"]), f"alert {rule['alert']}")
        expect(rule["labels"]["severity"] in ("page", "ticket"), f"alert {rule['alert']}: severity")


def accepts(config, variables, what):
    """Asks the program whether it accepts a configuration with these variables."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "headworks.toml")
        path.write_text(config)
        secrets = {"ADMIN_TOKEN": TOKEN, "OPENAI_API_KEY": "a key"}
        for arguments in (["config", "check", path], ["--config", path, "config", "show"]):
            environment = {"PATH": os.environ["PATH"], **secrets, **variables}
            ran = subprocess.run([HEADWORKS, *arguments], env=environment, capture_output=True, text=True)
            expect(ran.returncode == 0, f"{what}: {ran.stdout}{ran.stderr}")
        for name in variables:
            key = name.removeprefix("HEADWORKS_").lower().replace("__", ".")
            shown = re.search(rf"^{key} = .*{name}", ran.stdout, re.M)
            expect(shown, f"{what}: {name} sets nothing")


def check_compose():
    compose = load("compose.yaml")
    services = compose["services"]
    gateway = services["gateway"]
    variables = {key: value for key, value in gateway["environment"].items() if "__" in key}
    expect("HEADWORKS_FLEET__URL" in variables, "the gateways of the Compose file are no fleet")
    accepts((PACKAGING / compose["configs"]["gateway"]["file"]).read_text(), variables, "compose.yaml")
    ports = gateway["ports"][0].split(":")[1].split("-")
    expect(int(ports[1]) - int(ports[0]) + 1 == gateway["deploy"]["replicas"] == 3, "three gateways, three ports")
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            exists = (PACKAGING / source).is_file() if source.startswith(".") else source in compose["volumes"]
            expect(exists, f"compose.yaml: {name} mounts {source}, which does not exist")
        for config in service.get("configs", []):
            expect(config["source"] in compose["configs"], f"compose.yaml: {name}: {config['source']}")
        for other in service.get("depends_on", {}):
            expect(other in services, f"compose.yaml: {name} depends on {other}")
        image = service["image"]
        expect("build" in service or re.search(r":v?\d", image), f"compose.yaml: {image} has no version")
    scrape = load("prometheus.yaml")["scrape_configs"][0]["dns_sd_configs"][0]
    listen = (PACKAGING / "fleet.toml").read_text()
    expect(scrape["names"][0] in services, "prometheus.yaml scrapes a service that does not exist")
    expect(f'listen = "0.0.0.0:{scrape["port"]}"' in listen, "prometheus.yaml scrapes another port")


def check_kubernetes():
    found = {}
    for path in sorted((PACKAGING / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            found[document["kind"], document["metadata"]["name"]] = document
    deployment = found["Deployment", "headworks-gateway"]["spec"]
    pod = deployment["template"]
    labels = pod["metadata"]["labels"].items()
    container = pod["spec"]["containers"][0]
    for (kind, name), document in found.items():
        selector = document.get("spec", {}).get("selector", {})
        for label in selector.get("matchLabels", selector).items():
            expect(label in labels, f"{kind} {name} selects {label}, which the pods have not")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for (kind, name), document in found.items():
        for port in document["spec"]["ports"] if kind == "Service" else []:
            expect(port["targetPort"] in ports, f"Service {name}: no port {port['targetPort']}")
    secret = found["Secret", "headworks-gateway"]
    for variable in container["env"]:
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        if reference:
            held = found.get(("Secret", reference["name"]), {}).get("stringData", {})
            expect(reference["key"] in held, f"Deployment: no secret {reference}")
    variables = {one["name"]: "gateway-1" for one in container["env"] if "__" in one["name"]}
    config = found["ConfigMap", "headworks-gateway"]["data"]["headworks.toml"]
    accepts(config, variables, "configmap.yaml")
    for name, port in (("gateway", "http"), ("admin", "admin")):
        expect(re.search(rf'\[{name}\]\nlisten = "0\.0\.0\.0:{ports[port]}"', config), f"configmap.yaml: {name}.listen")
    # As it is, the program must refuse it.
    short = secret["stringData"]["admin-token"]
    expect(len(short) < 16, "secret.yaml: the placeholder would be accepted as a token")
    probes = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")}
    expect(probes == {"readiness": "/ready", "liveness": "/healthz"}, f"Deployment: probes {probes}")
    served = (ROOT / "crates/gateway/src/front/route.rs").read_text()
    for path in probes.values():
        expect(f'"{path}"' in served, f"Deployment: the gateway does not serve {path}")
    grace = int(re.search(r'grace = "(\d+)s"', config)[1]) + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    allowed = pod["spec"]["terminationGracePeriodSeconds"]
    expect(allowed > grace, f"Deployment: a pod may take {grace} s to stop, and is killed after {allowed} s")
    user = pod["spec"]["securityContext"]["runAsUser"]
    expect(f"USER {user}:" in (PACKAGING / "Containerfile").read_text(), "Deployment: another user than the image's")
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    expect(container["image"].endswith(f":{version}"), f"Deployment: {container['image']} is not {version}")


def check_sbom():
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    command = [ROOT / "scripts/dependencies", "sbom"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        problems.append(f"SBOM: {ran.stderr}")
        return
    sbom = json.loads(ran.stdout)
    references = [component["bom-ref"] for component in sbom["components"]]
    references.append(sbom["metadata"]["component"]["bom-ref"])
    expect(len(references) == len(set(references)) > 150, "SBOM: components are missing or listed twice")
    edges = {edge["ref"]: edge["dependsOn"] for edge in sbom["dependencies"]}
    expect(set(edges) == set(references), "SBOM: components without edges")
    expect(all(set(needs) <= set(references) for needs in edges.values()), "SBOM: dangling edges")
    for component in sbom["components"]:
        expect(component["licenses"], f"SBOM: {component['name']} has no licence")
        ours = component["name"].startswith("headworks-")
        expect(ours or component.get("hashes"), f"SBOM: {component['name']} has no hash")
    names = {component["name"] for component in sbom["components"]}
    expect({"rustls", "uplot.js"} <= names, "SBOM: rustls or uPlot is missing")
    expect(not {"proptest", "rcgen", "tempfile", "insta"} & names, "SBOM: has dependencies of tests")
    # The validator takes seconds for all of them, and they are made alike.
    sbom["components"] = sbom["components"][:3] + sbom["components"][-1:]
    sbom["dependencies"] = sbom["dependencies"][:3]
    schemas = {}
    for path in pathlib.Path(cyclonedx.__file__).parent.glob("schema/_res/*.json"):
        schemas[path.name] = json.loads(path.read_text())
    registry = referencing.Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}", referencing.Resource.from_contents(schema))
        for name, schema in schemas.items()
    )
    schema = schemas["bom-1.5.SNAPSHOT.schema.json"]
    for error in jsonschema.Draft7Validator(schema, registry=registry).iter_errors(sbom):
        problems.append(f"SBOM: {error.json_path}: {error.message}")


def check_binstall():
    """The archive that cargo-binstall expects is the one that a release has."""
    cargo = (ROOT / "crates/cli/Cargo.toml").read_text()
    release = (ROOT / "scripts/release").read_text()
    expect('name=headworks-$version-$target' in release, "scripts/release: another name")
    expect("/headworks-{ version }-{ target }.tar.gz" in cargo, "binstall: another archive")
    expect('bin-dir = "headworks-{ version }-{ target }/{ bin }"' in cargo, "binstall: another folder")


for each in (check_metrics, check_compose, check_kubernetes, check_sbom, check_binstall):
    each()
if problems:
    sys.exit("\n".join(problems))
