--- Datasets: what a Loader can read.
--
-- A dataset is anything with a length and get(i), i = 1..length, that returns the values of one sample. The
-- length is `#dataset`, or dataset:len() for tables with methods. A dataset that can hand out many samples at
-- once also has select(indices) -> values and range(start, count) -> values; loaders then make one call a
-- batch.

local ag = require "argand"
local core = require "argand.core"
local class = require "argand.class"
local options = require "argand.options"

local M = {}

--- Returns the number of samples of any dataset.
---@param dataset table|userdata
---@return integer
function M.length_of(dataset)
  if type(dataset) == "table" and dataset.len then return dataset:len() end
  return #dataset
end

--- Raises unless value can serve as a dataset.
---@param owner string
---@param value any
function M.require_dataset(owner, value)
  local is_object = type(value) == "table" or (type(value) == "userdata" and not core.is_tensor(value))
  local has_get, get = pcall(function() return value.get end) -- a userdata may have no fields
  if not is_object or not has_get or type(get) ~= "function" then
    local got = core.is_tensor(value) and "a tensor" or "a " .. type(value)
    core.raise("argument", owner, "dataset: expected an object with get(i) and a length, got " .. got,
      "wrap tensors: data.TensorDataset{x, y}")
  end
end

local function check_index(owner, index, length)
  if type(index) ~= "number" or index < 1 or index > length or index ~= math.floor(index) then
    core.raise("index", owner, ("index: expected 1 to %d, got %s"):format(length, tostring(index)))
  end
end

-- ---- tensors ----

---@class argand.data.TensorDataset
---@field tensors argand.Tensor[] all with the samples along dim 1
local TensorDataset = class "TensorDataset"

--- Takes a list of tensors of one length; sample i is position i of each.
---@param tensors argand.Tensor[]
function TensorDataset:init(tensors)
  if type(tensors) ~= "table" or #tensors == 0 then
    core.raise("argument", "TensorDataset", "tensors: expected a list of tensors, got "
      .. (core.is_tensor(tensors) and "a tensor" or type(tensors)), "e.g. data.TensorDataset{x, y}")
  end
  for position = 1, #tensors do
    local tensor = tensors[position]
    if not core.is_tensor(tensor) or tensor.ndim == 0 then
      local got = core.is_tensor(tensor) and "a 0-d tensor" or "a " .. type(tensor)
      core.raise("argument", "TensorDataset",
        ("tensors: expected tensors with samples along dim 1, got %s at position %d"):format(got, position))
    end
    if tensor:size(1) ~= tensors[1]:size(1) then
      core.raise("shape", "TensorDataset", ("tensors: %d samples at position %d, %d at position 1"):format(
        tensor:size(1), position, tensors[1]:size(1)))
    end
  end
  self.tensors = tensors
end

function TensorDataset:__len()
  return self.tensors[1]:size(1)
end

local function map_tensors(tensors, fn)
  local values = {}
  for position, tensor in ipairs(tensors) do values[position] = fn(tensor) end
  return unpack(values)
end

--- Returns the values of one sample.
---@param index integer
function TensorDataset:get(index)
  check_index("TensorDataset", index, #self)
  return map_tensors(self.tensors, function(tensor) return tensor:select(1, index) end)
end

--- Returns the samples at the positions given, stacked along dim 1.
---@param indices argand.Tensor i64 [n]
function TensorDataset:select(indices)
  return map_tensors(self.tensors, function(tensor) return tensor:index_select(1, indices) end)
end

--- Returns count samples from start on, as views.
---@param start integer
---@param count integer
function TensorDataset:range(start, count)
  return map_tensors(self.tensors, function(tensor) return tensor:narrow(1, start, count) end)
end

function TensorDataset:__tostring()
  local parts = {}
  for position, tensor in ipairs(self.tensors) do
    parts[position] = ("%s[%s]"):format(tensor.dtype, table.concat(tensor:shape(), ", "))
  end
  return ("TensorDataset(%d: %s)"):format(#self, table.concat(parts, ", "))
end

-- ---- parts ----

---@class argand.data.Subset
---@field dataset table|userdata
---@field indices argand.Tensor i64 [n]
local Subset = class "Subset"

--- The samples of a dataset at the positions given.
---@param dataset table|userdata
---@param indices argand.Tensor|integer[]
function Subset:init(dataset, indices)
  M.require_dataset("Subset", dataset)
  if type(indices) == "table" then
    local is_empty = #indices == 0
    indices = is_empty and ag.zeros({ 0 }, { dtype = "i64" }) or ag.tensor(indices, { dtype = "i64" })
  end
  if not core.is_tensor(indices) or indices.ndim ~= 1 then
    core.raise("argument", "Subset", "indices: expected a list of positions or a 1-d tensor")
  end
  if indices:numel() > 0 then
    local low, high, length = indices:amin():item(), indices:amax():item(), M.length_of(dataset)
    check_index("Subset", low, length)
    check_index("Subset", high, length)
  end
  self.dataset, self.indices, self.classes = dataset, indices, dataset.classes
  -- Only what the dataset below can do is offered: the loader asks for these methods.
  if dataset.select then self.select, self.range = Subset.select_below, Subset.range_below end
end

function Subset:__len()
  return self.indices:numel()
end

--- Returns the values of one sample of the part.
---@param index integer
function Subset:get(index)
  check_index("Subset", index, #self)
  return self.dataset:get(self.indices:get(index))
end

function Subset:select_below(indices)
  return self.dataset:select(self.indices:index_select(1, indices))
end

function Subset:range_below(start, count)
  return self.dataset:select(self.indices:narrow(1, start, count))
end

-- Sizes of the parts; the last one takes what rounding leaves when the fractions add up to one.
local function part_sizes(length, fractions)
  local sizes, total, used = {}, 0, 0
  for position, fraction in ipairs(fractions) do
    if not options.is_between(fraction, 0, 1) or fraction == 0 then
      core.raise("value", "split", "fractions: expected numbers in (0, 1], got " .. tostring(fraction))
    end
    total = total + fraction
    sizes[position] = math.floor(length * total + 0.5) - used
    used = used + sizes[position]
  end
  if total > 1 + 1e-9 then
    core.raise("value", "split", ("fractions: they add up to %g, more than 1"):format(total))
  end
  return sizes
end

--- Divides a dataset at random into disjoint parts, the same ones for the same seed.
---@param dataset table|userdata
---@param fractions number[] e.g. {0.8, 0.2}
---@param opts? {seed: integer}
---@return argand.data.Subset ... one for each fraction
function M.split(dataset, fractions, opts)
  local read = options.read("split", opts, { seed = options.optional.number })
  M.require_dataset("split", dataset)
  if type(fractions) ~= "table" or #fractions == 0 then
    core.raise("argument", "split", "fractions: expected a list of numbers, e.g. {0.8, 0.2}")
  end
  local length = M.length_of(dataset)
  local generator = read.seed and ag.generator(read.seed) or nil
  local order = ag.randperm(length, { dtype = "i64", generator = generator })
  local parts, start = {}, 1
  for position, size in ipairs(part_sizes(length, fractions)) do
    parts[position] = Subset(dataset, order:narrow(1, start, size))
    start = start + size
  end
  return unpack(parts)
end

M.TensorDataset, M.Subset = TensorDataset, Subset
return M
