# One image for every role: a node, the command line, the console, the gateway, a health check.
FROM python:3.11-slim AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/tarry && /opt/tarry/bin/pip install --no-cache-dir ".[node,console,http]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/tarry tarry
COPY --from=build /opt/tarry /opt/tarry
ENV PATH=/opt/tarry/bin:$PATH PYTHONUNBUFFERED=1
USER tarry
WORKDIR /var/lib/tarry
VOLUME /var/lib/tarry
EXPOSE 7001 7002
ENTRYPOINT ["tarry"]
CMD ["--help"]
