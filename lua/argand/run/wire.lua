--- wire: what the launcher and its other side on a remote host tell each other: plain values, and frames on a pipe.
--
-- A frame is "kind name length\n" and that many bytes. Values are written as s<length>:<bytes>, n<number>; T F and
-- t<number of fields>: with a key and a value for each. Nothing that is read is ever run.
local M = {}

M.HELLO = "ARGAND-AGENT 1\n"

--- The text of a string, a number, a boolean or a table of them.
---@param value any
---@return string
function M.encode(value)
  local kind = type(value)
  if kind == "string" then return ("s%d:%s"):format(#value, value) end
  if kind == "number" then return ("n%.17g;"):format(value) end
  if kind == "boolean" then return value and "T" or "F" end
  assert(kind == "table", kind)
  local parts, count = {}, 0
  for key, item in pairs(value) do
    count = count + 1
    parts[count] = M.encode(key) .. M.encode(item)
  end
  return ("t%d:%s"):format(count, table.concat(parts))
end

local function decode(text, from, depth)
  local kind = text:sub(from, from)
  if kind == "T" or kind == "F" then return kind == "T", from + 1 end
  if kind == "n" then
    local number, next_from = text:match("^([^;]+);()", from + 1)
    if tonumber(number) then return tonumber(number), next_from end
  end
  local count, next_from = text:match("^(%d+):()", from + 1)
  count = tonumber(count)
  if kind == "s" and count and next_from + count - 1 <= #text then
    return text:sub(next_from, next_from + count - 1), next_from + count
  elseif kind == "t" and count and depth < 16 then
    local result = {}
    for _ = 1, count do
      local key, item
      key, next_from = decode(text, next_from, depth + 1)
      item, next_from = decode(text, next_from, depth + 1)
      if type(key) == "table" or key ~= key then error("a key that is none", 0) end
      result[key] = item
    end
    return result, next_from
  end
  error(("no value at byte %d"):format(from), 0)
end

--- The value of a text that encode made; nil and a message for another text.
---@param text string
---@return any
function M.decode(text)
  local ok, value, last = pcall(decode, text, 1, 0)
  if not ok then return nil, value end
  if last ~= #text + 1 then return nil, "more text than one value" end
  return value
end

--- The bytes of a frame; name is one word.
function M.frame(kind, name, payload) return ("%s %s %d\n%s"):format(kind, tostring(name), #payload, payload) end

local MAX_HEADER_BYTES, MAX_FRAME_BYTES = 100, 2 ^ 28

--- A function that is given bytes as they come and calls on_frame(kind, name, payload) for each frame; it returns false when
--- they are no frames.
function M.reader(on_frame)
  local pieces, num_bytes, wanted = {}, 0, 1
  return function(bytes)
    pieces[#pieces + 1] = bytes
    num_bytes = num_bytes + #bytes
    if num_bytes < wanted then return true end -- a large frame is put together once
    local text, from = table.concat(pieces), 1
    wanted = 1
    while true do
      local kind, name, len, next_from = text:match("^(%l+) (%S+) (%d+)\n()", from)
      if not kind then
        if #text - from >= MAX_HEADER_BYTES or text:find("\n", from, true) then return false end
        break
      end
      len = tonumber(len)
      if len > MAX_FRAME_BYTES then return false end
      if #text - next_from + 1 < len then
        wanted = next_from - from + len
        break
      end
      on_frame(kind, name, text:sub(next_from, next_from + len - 1))
      from = next_from + len
    end
    pieces = {text:sub(from)}
    num_bytes = #pieces[1]
    return true
  end
end

return M
