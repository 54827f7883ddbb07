/** Copies between messages that have fields of the same name and type. */
import type { DescField, DescMessage, Message, MessageShape } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";

/** A message that fields may be copied from; undefined where there is none. */
export type Source = ReturnType<typeof source>;

export function source<D extends DescMessage>(schema: D, message: MessageShape<D> | undefined) {
  return message && reflect(schema, message);
}

/** Sets the fields that a source has, from the first one in which they are set; values are shared. */
export function copyFields<D extends DescMessage>(
  schema: D,
  target: MessageShape<D>,
  ...sources: readonly Source[]
): MessageShape<D> {
  const into = target as Message & Record<string, unknown>;
  for (const field of schema.fields) {
    for (const from of sources) {
      const same = from?.desc.fields.find((other) => isSame(field, other));
      if (!from || !same || !from.isSet(same)) continue;
      into[field.localName] = (from.message as typeof into)[same.localName];
      break;
    }
  }
  return target;
}

function isSame(one: DescField, other: DescField): boolean {
  return (
    one.name === other.name &&
    one.fieldKind === other.fieldKind &&
    one.scalar === other.scalar &&
    one.message?.typeName === other.message?.typeName &&
    one.enum?.typeName === other.enum?.typeName
  );
}
