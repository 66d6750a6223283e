# syntax=docker/dockerfile:1
# The node agent: NVML comes from the driver, mounted by NVIDIA's container runtime. Build from the repository's root:
#   docker build -f manifests/docker/agent.Dockerfile -t tangram/agent:dev .
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
RUN python -m venv /opt/tangram && /opt/tangram/bin/pip install --no-cache-dir hatchling
COPY pyproject.toml hatch_build.py requirements.lock README.md LICENSE ./
RUN sed -e '/^ *--hash/d' -e 's/ *\\$//' requirements.lock > constraints.txt
COPY scoring scoring
COPY extender extender
COPY node_agent node_agent
RUN /opt/tangram/bin/pip install --no-cache-dir --constraint constraints.txt '.[agent]' \
    && /opt/tangram/bin/pip uninstall --yes hatchling pip \
    && /opt/tangram/bin/python -m compileall -q /opt/tangram

FROM gcr.io/distroless/cc-debian12
COPY --from=build /usr/local /usr/local
COPY --from=build /opt/tangram /opt/tangram
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Root, for kubelet's socket of pod resources; the chart takes every capability away.
USER 0:0
EXPOSE 9464
ENTRYPOINT ["/opt/tangram/bin/python", "-m", "node_agent"]
