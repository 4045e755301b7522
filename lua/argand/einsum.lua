--- einsum: sums of products by index letters, "bij,bjk->bik". Composed of permute, matmul and sum, so it is differentiable.
local core = require "argand.core"

local M = {}

local function fail(message)
  core.raise("value", "einsum", "equation: " .. message)
end

-- "bij" -> {"b", "i", "j"}; letters only.
local function letters_of(text)
  local list = {}
  for c in text:gmatch(".") do
    if not c:match("%a") then fail(("expected letters, got %q"):format(c)) end
    list[#list + 1] = c
  end
  return list
end

local function parse(equation, count)
  local left, right = equation:gsub("%s", ""):match("^([%a,]*)%->(%a*)$")
  left = left or equation:gsub("%s", ""):match("^[%a,]+$")
  if not left then fail(("expected a form such as \"ij,jk->ik\", got %q"):format(equation)) end
  local inputs = {}
  for part in (left .. ","):gmatch("([^,]*),") do inputs[#inputs + 1] = letters_of(part) end
  if #inputs ~= count then fail(("expected %d operands, got %d tensors"):format(#inputs, count)) end
  if not right then -- implicit: letters that occur once, in alphabetical order
    local times, names = {}, {}
    for _, input in ipairs(inputs) do
      for _, c in ipairs(input) do times[c] = (times[c] or 0) + 1 end
    end
    for c, n in pairs(times) do if n == 1 then names[#names + 1] = c end end
    table.sort(names)
    right = table.concat(names)
  end
  return inputs, letters_of(right)
end

-- Checks sizes and takes diagonals of repeated letters: returns tensor and its distinct letters.
local function normalise(t, letters, sizes, position)
  if t.ndim ~= #letters then
    fail(("operand %d has %d dims, its letters are %d"):format(position, t.ndim, #letters))
  end
  local at, i = {}, 1
  letters = {unpack(letters)}
  while i <= #letters do
    local c = letters[i]
    if at[c] then
      if t:size(at[c]) ~= t:size(i) then
        fail(("letter %s stands for sizes %d and %d"):format(c, t:size(at[c]), t:size(i)))
      end
      t = t:diagonal(0, at[c], i)
      table.remove(letters, i)
      table.remove(letters, at[c])
      letters[#letters + 1] = c
      at, i = {}, 1
    else
      at[c] = i
      local size = t:size(i)
      if sizes[c] and sizes[c] ~= size and sizes[c] ~= 1 and size ~= 1 then
        fail(("letter %s stands for sizes %d and %d"):format(c, sizes[c], size))
      end
      if not sizes[c] or size ~= 1 then sizes[c] = size end
      i = i + 1
    end
  end
  return t, letters
end

local function set_of(...)
  local set = {}
  for _, list in ipairs {...} do for _, c in ipairs(list) do set[c] = true end end
  return set
end

-- Sums out letters that nothing later needs, then orders t as `order`, with size 1 for letters it lacks.
local function arrange(t, letters, order)
  local position, dims = {}, {}
  for i, c in ipairs(letters) do position[c] = i end
  for _, c in ipairs(order) do
    if position[c] then dims[#dims + 1] = position[c] end
  end
  if #dims > 0 then t = t:permute(dims) end
  for i, c in ipairs(order) do if not position[c] then t = t:unsqueeze(i) end end
  return t
end

local function sum_out(t, letters, keep)
  local dims, left = {}, {}
  for i, c in ipairs(letters) do
    if keep[c] then left[#left + 1] = c else dims[#dims + 1] = i end
  end
  if #dims > 0 then t = t:sum(dims) end
  return t, left
end

local function product(sizes, letters)
  local n = 1
  for _, c in ipairs(letters) do n = n * sizes[c] end
  return n
end

-- Contracts a and b: letters in both and needed later are batch, in both and not needed are summed by the matrix product.
local function contract(a, la, b, lb, needed, sizes)
  local in_a, in_b = set_of(la), set_of(lb)
  local keep_a, keep_b = {}, {}
  for c in pairs(in_a) do keep_a[c] = needed[c] or in_b[c] end
  for c in pairs(in_b) do keep_b[c] = needed[c] or in_a[c] end
  a, la = sum_out(a, la, keep_a)
  b, lb = sum_out(b, lb, keep_b)
  local batch, inner, rows, columns = {}, {}, {}, {}
  for _, c in ipairs(la) do
    local list = not in_b[c] and rows or needed[c] and batch or inner
    list[#list + 1] = c
  end
  for _, c in ipairs(lb) do if not in_a[c] then columns[#columns + 1] = c end end
  local function join(...)
    local list = {}
    for _, part in ipairs {...} do for _, c in ipairs(part) do list[#list + 1] = c end end
    return list
  end
  local function whole(t, order) -- broadcast sizes of 1 before dims are merged
    local shape = {}
    for i, c in ipairs(order) do shape[i] = sizes[c] end
    return #shape > 0 and t:expand(shape) or t
  end
  local oa, ob = join(batch, rows, inner), join(batch, inner, columns)
  local nb, nr, ni, nc = product(sizes, batch), product(sizes, rows), product(sizes, inner), product(sizes, columns)
  a = whole(arrange(a, la, oa), oa):reshape(nb, nr, ni)
  b = whole(arrange(b, lb, ob), ob):reshape(nb, ni, nc)
  local out, shape = join(batch, rows, columns), {}
  for i, c in ipairs(out) do shape[i] = sizes[c] end
  return a:matmul(b):reshape(shape), out
end

--- einsum(equation, a, b, ...): each letter names a dim; letters missing on the right are summed.
---@param equation string for instance "bij,bjk->bik"
---@param ... argand.Tensor
---@return argand.Tensor
function M.einsum(equation, ...)
  local operands, count = {...}, select("#", ...)
  if type(equation) ~= "string" then
    core.raise("argument", "einsum", "equation: expected a string, got " .. type(equation))
  end
  for i = 1, count do
    local kind = type(operands[i])
    if not core.is_tensor(operands[i]) then
      core.raise("argument", "einsum", ("operands: expected tensors, got %s at position %d"):format(kind, i))
    end
  end
  local inputs, output = parse(equation, count)
  local sizes, letters = {}, {}
  for i, t in ipairs(operands) do operands[i], letters[i] = normalise(t, inputs[i], sizes, i) end
  local seen = {}
  for _, c in ipairs(output) do
    if seen[c] then fail(("letter %s is in the result twice"):format(c)) end
    seen[c] = true
    if not sizes[c] then fail(("letter %s of the result is in no operand"):format(c)) end
  end
  local t, l = operands[1], letters[1]
  for i = 2, #operands do
    local needed = set_of(output)
    for k = i + 1, #operands do for c in pairs(set_of(letters[k])) do needed[c] = true end end
    t, l = contract(t, l, operands[i], letters[i], needed, sizes)
  end
  t, l = sum_out(t, l, set_of(output))
  return arrange(t, l, output)
end

return M
