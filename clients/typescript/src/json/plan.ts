/** What the descriptors say of a message's JSON (gymmesh/json/v1/json.proto), read once for each. */
import { type DescField, type DescMessage, getOption } from "@bufbuild/protobuf";
import {
  type FieldJson,
  field as fieldOption,
  Marker,
  message as messageOption,
  Shape,
} from "../gen/gymmesh/json/v1/json_pb.js";

/** A field that has a key of its own. */
export interface Member {
  readonly field: DescField;
  readonly key: string;
  readonly how: FieldJson;
  /** Whether the field is `x_json`: bytes that hold the key's JSON. */
  readonly isJson: boolean;
}

/** How a message is written and read. */
export interface Plan {
  readonly shape: Shape;
  /** In the order of the fields' numbers. */
  readonly members: readonly Member[];
  readonly overlay: DescField | undefined;
  /** The marker that the document had no `type`. */
  readonly typeOmitted: DescField | undefined;
  /** The markers that the document had no list, by the list's key. */
  readonly listOmitted: ReadonlyMap<string, DescField>;
  /** The markers that the document had an empty list, by its key. */
  readonly emptyList: ReadonlyMap<string, DescField>;
}

const plans = new WeakMap<DescMessage, Plan>();

/** The plan of a message. */
export function planOf(desc: DescMessage): Plan {
  let plan = plans.get(desc);
  if (!plan) {
    plan = planned(desc);
    plans.set(desc, plan);
  }
  return plan;
}

/** The keys that an object of this message has of its own. */
export function keysOf(desc: DescMessage): ReadonlySet<string> {
  return new Set(planOf(desc).members.map(({ key }) => key));
}

function planned(desc: DescMessage): Plan {
  const { shape } = getOption(desc, messageOption);
  const members: Member[] = [];
  let overlay: DescField | undefined;
  let typeOmitted: DescField | undefined;
  const listOmitted = new Map<string, DescField>();
  const emptyList = new Map<string, DescField>();
  for (const field of [...desc.fields].sort((left, right) => left.number - right.number)) {
    const how = getOption(field, fieldOption);
    if (field.name === "overlay_json") overlay = field;
    else if (how.marker === Marker.TYPE_OMITTED) typeOmitted = field;
    else if (how.marker === Marker.LIST_OMITTED) {
      listOmitted.set(field.name.replace(/_omitted$/, ""), field);
    } else if (how.marker === Marker.EMPTY_LIST) {
      emptyList.set(field.name.replace(/_empty$/, ""), field);
    } else members.push(memberOf(field, how, shape));
  }
  return { shape, members, overlay, typeOmitted, listOmitted, emptyList };
}

function memberOf(field: DescField, how: FieldJson, shape: Shape): Member {
  const isJson = shape === Shape.UNSPECIFIED && field.name.endsWith("_json");
  const shared = shape === Shape.UNSPECIFIED ? field.oneof?.name : undefined;
  const own = isJson ? field.name.replace(/_json$/, "") : field.name;
  return { field, key: how.key || how.formOf || shared || own, how, isJson };
}
