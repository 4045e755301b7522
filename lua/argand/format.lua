--- Text of tensors and values, as the prompt and tostring show them.
--
-- Tensors follow numpy with 4 digits: aligned decimals, scientific notation for wide ranges, three items at
-- each edge when there are more than a thousand elements. Whole floats below 1e8 stay decimal, however wide
-- their range (numpy has 1.e+00 beside 1001.). Only elements that are shown are read.

local core = require "argand.core"

local M = {}

local SUMMARY_NUMEL = 1000 -- above this only the edges are shown
local EDGE_ITEMS = 3
local SHOWN_LIMIT = 216 -- elements in a summary: the edges of three dims
local PRECISION = 4 -- digits after the point
local SCIENTIFIC_HIGH, SCIENTIFIC_LOW, SCIENTIFIC_RATIO = 1e8, 1e-4, 1e3

-- ---- which elements are shown ----

-- What is shown of a dim: `head` leading and `tail` trailing positions; `tail` nil means that head is all of
-- it.
local function edge_of(size, items)
  if size <= math.max(2 * items, 1) then return { head = size } end
  if items == 0 then return { head = 1, tail = 0 } end
  return { head = items, tail = items }
end

local function shown_count(edges)
  local count = 1
  for _, edge in ipairs(edges) do count = count * (edge.head + (edge.tail or 0)) end
  return count
end

local function choose_edges(shape, numel)
  local edges = {}
  for dim, size in ipairs(shape) do
    edges[dim] = edge_of(size, numel > SUMMARY_NUMEL and EDGE_ITEMS or size)
  end
  if numel <= SUMMARY_NUMEL then return edges end
  -- The edges of many dims still multiply: narrow the outermost dims until little enough is left.
  for dim, size in ipairs(shape) do
    for items = EDGE_ITEMS - 1, 0, -1 do
      if shown_count(edges) <= SHOWN_LIMIT then return edges end
      edges[dim] = edge_of(size, items)
    end
  end
  return edges
end

-- Calls visit(flat position) for the shown elements in row-major order.
local function each_shown(shape, edges, visit)
  local function descend(dim, flat)
    if dim > #shape then return visit(flat) end
    local size, edge = shape[dim], edges[dim]
    for position = 0, edge.head - 1 do descend(dim + 1, flat * size + position) end
    for position = size - (edge.tail or 0), size - 1 do descend(dim + 1, flat * size + position) end
  end
  descend(1, 0)
end

-- ---- numbers ----

local function trim_zeros(text)
  return (text:gsub("0+$", ""))
end

local function special(value)
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
end

-- Smallest and largest magnitude of the finite, non-zero values; nil when there are none.
local function magnitudes(values)
  local low, high
  for _, value in ipairs(values) do
    local size = math.abs(value)
    if size > 0 and size < math.huge then
      low = math.min(low or size, size)
      high = math.max(high or size, size)
    end
  end
  return low, high
end

local function needs_exponent(values)
  local low, high = magnitudes(values)
  if not low then return false end
  local all_whole = true
  for _, value in ipairs(values) do
    if not special(value) and value ~= math.floor(value) then all_whole = false end
  end
  if all_whole then return high >= SCIENTIFIC_HIGH end
  return high >= SCIENTIFIC_HIGH or low < SCIENTIFIC_LOW or high / low > SCIENTIFIC_RATIO
end

-- Scientific notation with as many digits as the longest mantissa needs, at most PRECISION.
local function scientific(values)
  local digits = 0
  for _, value in ipairs(values) do
    if not special(value) then
      local mantissa = (("%." .. PRECISION .. "e"):format(value)):match("%.(%d+)e")
      digits = math.max(digits, #trim_zeros(mantissa))
    end
  end
  local texts, pattern = {}, "%#." .. digits .. "e" -- # keeps the point of "1.e+08"
  for position, value in ipairs(values) do
    texts[position] = special(value) or pattern:format(value)
  end
  return texts
end

-- Fixed point, zeros at the end trimmed and replaced by blanks so that the points stay below each other.
local function fixed(values)
  local texts, fraction = {}, 0
  for position, value in ipairs(values) do
    local text = special(value)
    if not text then
      text = trim_zeros(("%." .. PRECISION .. "f"):format(value))
      fraction = math.max(fraction, #text:match("%.(%d*)$"))
    end
    texts[position] = text
  end
  for position, text in ipairs(texts) do
    local digits = text:match("%.(%d*)$")
    texts[position] = text .. (" "):rep(digits and fraction - #digits or 0)
  end
  return texts
end

local function float_texts(values)
  return needs_exponent(values) and scientific(values) or fixed(values)
end

local function int_texts(values)
  local texts = {}
  for position, value in ipairs(values) do
    texts[position] = ("%.0f"):format(value)
  end
  return texts
end

local function bool_texts(values)
  local texts = {}
  for position, value in ipairs(values) do texts[position] = tostring(value ~= 0 and value ~= false) end
  return texts
end

local int_dtypes = { i64 = true, i32 = true, i16 = true, i8 = true, u8 = true }

-- Texts of the values, all of one width, right-aligned.
local function aligned_texts(values, dtype)
  local texts
  if dtype == "bool" then
    texts = bool_texts(values)
  elseif int_dtypes[dtype] then
    texts = int_texts(values)
  else
    texts = float_texts(values)
  end
  local width = 0
  for _, text in ipairs(texts) do width = math.max(width, #text) end
  for position, text in ipairs(texts) do texts[position] = (" "):rep(width - #text) .. text end
  return texts
end

-- ---- layout ----

-- One row "[a, b, c]", broken at the terminal's width; further lines start below the first element.
local function row_text(items, indent, width, closing)
  local lines, line = {}, (" "):rep(indent)
  local is_first = true
  for position, item in ipairs(items) do
    local text = item .. (position < #items and "," or "")
    local room = position < #items and width or width - closing
    if not is_first and #line + 1 + #text > room then
      lines[#lines + 1] = line
      line, is_first = (" "):rep(indent), true
    end
    line = line .. (is_first and "" or " ") .. text
    is_first = false
  end
  lines[#lines + 1] = line
  return "[" .. table.concat(lines, "\n"):sub(indent + 1) .. "]"
end

-- Nested brackets. next_text() hands out the texts in row-major order; depth is the number of open brackets.
local function nested_text(shape, edges, dim, next_text, width)
  local edge, items = edges[dim], {}
  local is_row = dim == #shape
  local function add(count)
    for _ = 1, count do
      items[#items + 1] = is_row and next_text() or nested_text(shape, edges, dim + 1, next_text, width)
    end
  end
  add(edge.head)
  if edge.tail then
    items[#items + 1] = "..."
    add(edge.tail)
  end
  if is_row then return row_text(items, dim, width, #shape) end
  local separator = "," .. ("\n"):rep(#shape - dim) .. (" "):rep(dim)
  return "[" .. table.concat(items, separator) .. "]"
end

local function numel_of(shape)
  local numel = 1
  for _, size in ipairs(shape) do numel = numel * size end
  return numel
end

local function elements_text(tensor, shape, width)
  local numel = numel_of(shape)
  if numel == 0 then return "[]" end
  local edges = choose_edges(shape, numel)
  local values = {}
  each_shown(shape, edges, function(flat) values[#values + 1] = core.read_element(tensor, flat) end)
  local texts = aligned_texts(values, tensor.dtype)
  if #shape == 0 then return (texts[1]:gsub("^ +", "")) end
  local position = 0
  return nested_text(shape, edges, 1, function()
    position = position + 1
    return texts[position]
  end, width)
end

local function require_tensor(value)
  if not core.is_tensor(value) then
    core.raise("argument", "format", "tensor: expected a tensor, got " .. type(value))
  end
end

--- Returns a tensor's type and shape in one word, e.g. "f32[2, 3]".
---@param tensor argand.Tensor
---@return string
function M.summary(tensor)
  require_tensor(tensor)
  return ("%s[%s]"):format(tensor.dtype, table.concat(tensor:shape(), ", "))
end

local function footer(tensor)
  local text = M.summary(tensor) .. " " .. tensor.device
  if not tensor.requires_grad then return text end
  local op = tensor.grad_op
  return text .. ", " .. (op and "grad: " .. op or "requires_grad")
end

--- Returns the elements (edges only when there are many) and a line with dtype, shape and device.
---@param tensor argand.Tensor
---@param width? integer columns, default those of the terminal
---@return string
function M.tensor(tensor, width)
  require_tensor(tensor)
  width = width or core.term_width() or 80
  if type(width) ~= "number" then
    core.raise("argument", "format", "width: expected a number of columns, got " .. type(width))
  end
  return elements_text(tensor, tensor:shape(), width) .. "\n" .. footer(tensor)
end

-- ---- other values ----

local DEPTH_LIMIT, ITEM_LIMIT, STRING_LIMIT = 4, 30, 2000

local reserved = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then
  true until while]]):gmatch "%a+" do
  reserved[word] = true
end

-- LuaJIT's %q escapes control characters as well.
local function quoted(text)
  local rest = #text > STRING_LIMIT and (" ... (%d bytes)"):format(#text) or ""
  local escaped = ("%q"):format(text:sub(1, STRING_LIMIT)):gsub("\\\n", "\\n")
  return escaped .. rest
end

local value_text

local function key_text(key, state)
  if type(key) == "string" and key:match "^[%a_][%w_]*$" and not reserved[key] then return key end
  if type(key) == "string" then return "[" .. quoted(key) .. "]" end
  return "[" .. value_text(key, state, DEPTH_LIMIT) .. "]"
end

-- Keys outside the sequence part: numbers in order, then strings in order, then the rest by their text.
local function other_keys(value, length)
  local keys, ranks = {}, { number = 1, string = 2 }
  for key in pairs(value) do
    local is_item = type(key) == "number" and key >= 1 and key <= length and key == math.floor(key)
    if not is_item then keys[#keys + 1] = key end
  end
  table.sort(keys, function(a, b)
    local rank_a, rank_b = ranks[type(a)] or 3, ranks[type(b)] or 3
    if rank_a ~= rank_b then return rank_a < rank_b end
    if rank_a < 3 then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end

-- Items of a table as lines: many short ones share a line.
local function lines_of(items)
  local lines = {}
  for position, item in ipairs(items) do
    local text = item .. (position < #items and "," or "")
    local last = lines[#lines]
    if last and #last + #text < 72 and #last <= 72 and #item <= 12 and not last:find("\n", 1, true) then
      lines[#lines] = last .. " " .. text
    else
      lines[#lines + 1] = text
    end
  end
  return lines
end

local function join_items(items, depth)
  local line = "{ " .. table.concat(items, ", ") .. " }"
  if #line + 2 * depth <= 78 and not line:find("\n", 1, true) then return line end
  local indent = "\n" .. ("  "):rep(depth)
  return "{" .. indent .. "  " .. table.concat(lines_of(items), indent .. "  ") .. indent .. "}"
end

local function table_text(value, state, depth)
  if state[value] then return "<cycle>" end
  if next(value) == nil then return "{}" end
  if depth >= DEPTH_LIMIT then return "{ ... }" end
  state[value] = true
  local items, length = {}, #value
  for position = 1, math.min(length, ITEM_LIMIT) do
    items[position] = value_text(value[position], state, depth + 1)
  end
  local keys = other_keys(value, length)
  local shown = math.min(#keys, ITEM_LIMIT - #items)
  for position = 1, shown do
    local key = keys[position]
    items[#items + 1] = key_text(key, state) .. " = " .. value_text(value[key], state, depth + 1)
  end
  local hidden = length - math.min(length, ITEM_LIMIT) + #keys - shown
  if hidden > 0 then items[#items + 1] = ("... %d more"):format(hidden) end
  state[value] = nil
  return join_items(items, depth)
end

-- state holds the tables that are open, to see cycles.
function value_text(value, state, depth)
  if type(value) == "string" then return quoted(value) end
  if core.is_tensor(value) then return M.summary(value) end
  if type(value) ~= "table" then return tostring(value) end
  local meta = getmetatable(value)
  if type(meta) == "table" and meta.__tostring then return tostring(value) end
  return table_text(value, state, depth)
end

--- Returns the text of any value: tensors inside tables as one word, keys sorted, depth and count limited.
---@param value any
---@return string
function M.value(value)
  if type(value) == "string" then return quoted(value) end
  if core.is_tensor(value) then return M.tensor(value) end
  return value_text(value, {}, 0)
end

return M
