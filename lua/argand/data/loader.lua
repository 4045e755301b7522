--- Loader: batches of a dataset, in order or shuffled anew every epoch.
--
--   for x, y in loader:batches() do ... end        #loader is the number of batches

local ag = require "argand"
local core = require "argand.core"
local class = require "argand.class"
local options = require "argand.options"
local dataset_of = require "argand.data.dataset"

---@class argand.data.LoaderOptions
---@field batch_size? integer default 1
---@field shuffle? boolean
---@field seed? integer
---@field drop_last? boolean leaves out a last batch that is not full
---@field collate? fun(samples: any[][]): ...
---@field transform? fun(...): ...

---@class argand.data.Loader
local Loader = class "Loader"

--- `seed` fixes the order of all epochs; without it the default generator decides. `collate(samples)` makes
--- the values of a batch from a list of lists of values; `transform(...)` replaces the values of every batch.
---@param dataset table|userdata
---@param opts? argand.data.LoaderOptions
function Loader:init(dataset, opts)
  dataset_of.require_dataset("Loader", dataset)
  local read = options.read("Loader", opts, {
    batch_size = 1, shuffle = false, drop_last = false, seed = options.optional.number,
    collate = options.optional["function"], transform = options.optional["function"],
  })
  if not options.is_between(read.batch_size, 1, 2 ^ 53) or read.batch_size ~= math.floor(read.batch_size) then
    core.raise("value", "Loader", "batch_size: expected a whole number >= 1, got " .. read.batch_size)
  end
  if read.collate and dataset.select then
    core.raise("option", "Loader", "collate: the dataset makes its own batches", "use transform")
  end
  self.dataset, self.batch_size, self.shuffle = dataset, read.batch_size, read.shuffle
  self.drop_last, self.collate, self.transform = read.drop_last, read.collate, read.transform
  self.generator = read.seed and ag.generator(read.seed) or nil
end

function Loader:__len()
  local count = dataset_of.length_of(self.dataset) / self.batch_size
  return self.drop_last and math.floor(count) or math.ceil(count)
end

-- Values of the same place of all samples as one tensor: tensors are stacked, numbers become f32, booleans
-- bool.
local function stack_values(values)
  if core.is_tensor(values[1]) then return ag.stack(values) end
  local kind = type(values[1])
  if kind == "number" or kind == "boolean" then return ag.tensor(values) end
  core.raise("argument", "Loader", ("samples: expected tensors, numbers or booleans, got a %s"):format(kind),
    "give the loader collate = function(samples)")
end

local function default_collate(samples)
  local columns = {}
  for place = 1, #samples[1] do
    local values = {}
    for position, sample in ipairs(samples) do values[position] = sample[place] end
    columns[place] = stack_values(values)
  end
  return unpack(columns)
end

-- Returns fetch(start, count) -> values of a batch, for one epoch.
local function fetch_many(self, order)
  local dataset = self.dataset
  if order then
    return function(start, count) return dataset:select(order:narrow(1, start, count)) end
  end
  if dataset.range then
    return function(start, count) return dataset:range(start, count) end
  end
  return function(start, count)
    return dataset:select(ag.arange(start, start + count, { dtype = "i64" }))
  end
end

local function fetch_one_by_one(self, order)
  local dataset, collate = self.dataset, self.collate or default_collate
  local positions = order and order:tolist()
  return function(start, count)
    local samples = {}
    for position = start, start + count - 1 do
      samples[#samples + 1] = { dataset:get(positions and positions[position] or position) }
    end
    return collate(samples)
  end
end

--- Returns an iterator over the batches of one epoch: the values of the dataset, stacked along dim 1.
---@return fun(): ...
function Loader:batches()
  local length, batch_size, transform = dataset_of.length_of(self.dataset), self.batch_size, self.transform
  local order = self.shuffle and ag.randperm(length, { dtype = "i64", generator = self.generator }) or nil
  local fetch = self.dataset.select and fetch_many(self, order) or fetch_one_by_one(self, order)
  local last = self.drop_last and length - length % batch_size or length
  local start = 1 - batch_size
  return function()
    start = start + batch_size
    if start > last then return nil end
    local count = math.min(batch_size, last - start + 1)
    if transform then return transform(fetch(start, count)) end
    return fetch(start, count)
  end
end

return Loader
