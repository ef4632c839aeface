import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, SignJWT } from "jose";
import { ANSWER_SIGNATURE_HEADER, ANSWER_SIGNATURE_TYPE } from "../../shared/protocol/answer-signature.ts";
import type { Answer, AskedAttempt, EdgeKey } from "../../shared/protocol/answer.ts";
import { edgeKeySchema } from "../../shared/protocol/answer.ts";
import type { InferenceClaims } from "../../shared/protocol/inference-token.ts";
import { type EndedRequest, type Report, reportSchema } from "../../shared/protocol/report.ts";

type SigningKey = Awaited<ReturnType<typeof generateKeyPair>>["privateKey"];

export interface SignOptions {
  readonly body: string;
  readonly path?: string | undefined;
  readonly replica?: string;
  readonly requestId?: string;
  readonly attempt?: number;
  /** Members over the right ones; undefined leaves one out. */
  readonly claims?: Readonly<Record<string, unknown>>;
  /** Header members over the right ones. */
  readonly header?: Readonly<Record<string, string>>;
  readonly key?: SigningKey;
}

/** What a host sees of an edge: it takes reports, answers them with keys, and signs requests. */
export class FakeEdge {
  readonly token = "sk-host-test";
  readonly name: string;
  readonly host: string;
  readonly reports: { readonly report: Report }[] = [];
  readonly #server: Server;
  readonly #privateKey: SigningKey;
  keys: EdgeKey[];
  /** Which ended requests the next answers acknowledge. */
  acknowledge: (entry: EndedRequest) => boolean = () => true;
  /** What the next answers ask for. */
  asked: AskedAttempt[] = [];
  /** Status of the next answers; anything but 200 has no body. */
  status = 200;
  /** What somebody on the way makes of an answer and its signature. */
  onTheWay: (text: string, signature: string) => readonly [text: string, signature: string | null] = (...sent) => sent;
  /** Added to the edge's clock. */
  clockOffsetMs = 0;
  reportEveryMs = 1_000;
  desired: Answer["desired"] = null;
  port = 0;

  private constructor(options: { name: string; host: string; key: EdgeKey; privateKey: SigningKey }) {
    this.name = options.name;
    this.host = options.host;
    this.keys = [options.key];
    this.#privateKey = options.privateKey;
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  static async start(options: { name?: string; host: string; port?: number }): Promise<FakeEdge> {
    const { publicKey, privateKey } = await generateKeyPair("EdDSA", { crv: "Ed25519" });
    const jwk = await exportJWK(publicKey);
    const key = edgeKeySchema.parse({ ...jwk, kid: await calculateJwkThumbprint(jwk) });
    const edge = new FakeEdge({ name: options.name ?? "edge-1", host: options.host, key, privateKey });
    await edge.listen(options.port ?? 0);
    return edge;
  }

  async listen(port = this.port): Promise<void> {
    this.#server.listen(port, "127.0.0.1");
    await once(this.#server, "listening");
    const address = this.#server.address();
    this.port = typeof address === "object" && address !== null ? address.port : 0;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get lastReport(): Report | null {
    return this.reports.at(-1)?.report ?? null;
  }

  /** Every ended request that was ever reported, once. */
  get ended(): EndedRequest[] {
    const seen = new Map<string, EndedRequest>();
    for (const { report } of this.reports) {
      for (const entry of report.ended) seen.set(`${entry.request_id}.${entry.attempt}`, entry);
    }
    return [...seen.values()];
  }

  newRequestId(): string {
    return `req_${randomBytes(11).toString("hex")}`;
  }

  async sign(options: SignOptions): Promise<string> {
    const requestId = options.requestId ?? this.newRequestId();
    const attempt = options.attempt ?? 1;
    const nowSeconds = Math.floor((Date.now() + this.clockOffsetMs) / 1_000);
    const claims: InferenceClaims = {
      iss: this.name,
      aud: this.host,
      jti: `${requestId}.${attempt}`,
      iat: nowSeconds,
      exp: nowSeconds + 30,
      method: "POST",
      path: options.path ?? "/v1/chat/completions",
      body_sha256: createHash("sha256").update(options.body).digest("hex"),
      request_id: requestId,
      attempt,
      replica: options.replica ?? "sim",
      cache_salt: "project-1",
    };
    return new SignJWT({ ...claims, ...options.claims })
      .setProtectedHeader({ alg: "EdDSA", kid: this.keys[0]?.kid ?? "", ...options.header })
      .sign(options.key ?? this.#privateKey);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.url !== "/agent/v1/reports" || request.headers.authorization !== `Bearer ${this.token}`) {
      response.writeHead(request.url === "/agent/v1/reports" ? 401 : 404).end();
      return;
    }
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    const sent = Buffer.concat(chunks).toString("utf8");
    const report = reportSchema.parse(JSON.parse(sent));
    if (this.status !== 200) {
      response.writeHead(this.status).end();
      return;
    }
    this.reports.push({ report });
    const answer: Answer = {
      protocol: 1,
      edge: this.name,
      ack_seq: report.seq,
      ack_ended: report.ended
        .filter((entry) => this.acknowledge(entry))
        .map(({ request_id, attempt }) => ({ request_id, attempt })),
      ask_ended: this.asked,
      edge_time: Date.now() + this.clockOffsetMs,
      keys: this.keys,
      report_every_ms: this.reportEveryMs,
      desired: this.desired,
    };
    const body = JSON.stringify(answer);
    const signature = await new SignJWT({
      iss: this.name,
      aud: this.host,
      report_sha256: createHash("sha256").update(sent).digest("hex"),
      answer_sha256: createHash("sha256").update(body).digest("hex"),
    })
      .setProtectedHeader({ alg: "EdDSA", kid: this.keys[0]?.kid ?? "", typ: ANSWER_SIGNATURE_TYPE })
      .sign(this.#privateKey);
    const [text, header] = this.onTheWay(body, signature);
    response
      .writeHead(200, {
        "content-type": "application/json",
        ...(header === null ? {} : { [ANSWER_SIGNATURE_HEADER]: header }),
      })
      .end(text);
  }
}
