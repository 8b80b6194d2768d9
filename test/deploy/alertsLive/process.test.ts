import { beforeAll, describe, expect, test } from "@jest/globals";
import { type BrokerEnd, sharedEnd } from "../../support/brokerEnds/index.ts";
import { describeWith } from "../../support/brokers/index.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort } from "../../support/ports.ts";
import { ordersTo, type Service, useServices } from "../../support/service.ts";
import { startTcpProxy, type TcpProxy } from "../../support/tcpProxy.ts";
import { useAlerts } from "./useAlerts.ts";

/** Alerts of a single process: its starts and its source. */

const LABELS = { namespace: "shop", job: "svc", instance: "one" };
const NOBODY = { url: "http://127.0.0.1:9" };

describeWithTools(["prometheus"], "Prometheus over one process", () => {
  describe("that is started again and again", () => {
    const services = useServices("block");
    // The half hour takes 24 s: start times are whole seconds, and each start takes a while.
    const alerts = useAlerts(services, "restarts", { factor: 75 });
    const startTime = `process_start_time_seconds{instance="one"}`;
    let start: () => Promise<Service>;
    let service: Service;

    beforeAll(async () => {
      const database = await services.database();
      const port = await freePort();
      const config = ordersTo(NOBODY);
      start = () => services.start({ database, config, port, roles: ["ingest"] });
      service = await start();
      alerts.prometheus.scrape([{ port, labels: LABELS }]);
      await alerts.shows("svc_info");
    }, 60_000);

    const seenStart = async () => Number((await alerts.prometheus.query(startTime))[0]?.value[1]);
    /** Ends the process and starts it anew; resolves when Prometheus has the later start time. */
    const restart = async (end: (service: Service) => Promise<unknown>) => {
      const before = await seenStart();
      // Within the same second it would not show.
      await eventually(() => Date.now() / 1000 > before + 1);
      await end(service);
      service = await start();
      await eventually(async () => expect(await seenStart()).toBeGreaterThan(before), { label: "a later start time" });
    };

    test("SvcRestarting: the third restart is one too many", async () => {
      const stopping = "stopping; a second signal ends the process at once";
      await restart(async (running) => {
        await running.stop();
        expect(running.process.lines.join("\n")).toContain(stopping);
      });
      await restart(async (running) => {
        await running.kill();
        expect(running.process.lines.join("\n")).not.toContain("stopping");
      });
      expect(await alerts.active("SvcRestarting")).toEqual([]);
      await restart((running) => running.kill());
      const { annotations } = await alerts.fires("SvcRestarting", LABELS);
      await alerts.ends("SvcRestarting");
      expect(annotations.description).toBe("one has restarted 3 times within 30 minutes.");
    });

    alerts.testCoverage();
  });

  describeWith(["nats"], "with a broker source", () => {
    const services = useServices("block");
    const alerts = useAlerts(services, "source");
    let proxy: TcpProxy;
    let service: Service;

    beforeAll(async () => {
      const end: BrokerEnd = await sharedEnd("nats");
      services.defer(() => end[Symbol.asyncDispose]());
      const { hostname, port } = new URL(String(end.source.servers));
      proxy = await startTcpProxy({ host: hostname, port: Number(port) });
      services.defer(() => proxy.close());
      const events = { type: "nats", ...end.source, servers: `nats://127.0.0.1:${proxy.port}`, topic: "ok" };
      const config = ordersTo(NOBODY, { sources: { events } });
      service = await services.start({ database: await services.database(), config, roles: ["ingest"] });
      alerts.prometheus.scrape([{ port: service.port, labels: LABELS }]);
      await alerts.shows('svc_component_up{component="nats.events"} == 1');
    }, 60_000);

    test("SvcSourceDisconnected: the broker cannot be reached", async () => {
      proxy.setMode("cut");
      const { annotations } = await alerts.fires("SvcSourceDisconnected", { ...LABELS, component: "nats.events" });
      const [line] = await service.process.waitForLine(/.*"msg":"component is down".*/);
      // A source has an alert of its own.
      expect(await alerts.active("SvcNotReady")).toEqual([]);
      proxy.setMode("open");
      await alerts.ends("SvcSourceDisconnected");
      expect(annotations.summary).toBe("A broker source is disconnected: nats.events");
      expect(JSON.parse(line)).toMatchObject({ component: "nats.events", reason: expect.stringMatching(/./) });
    });

    alerts.testCoverage();
  });
});
