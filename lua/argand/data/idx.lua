--- Reads a data set in MNIST's IDX layout: one file of images, one of labels, plain or gzip.

local core = require "argand.core"
local ag = require "argand"
local dataset = require "argand.data.dataset"

-- An error object to be returned, not raised.
local function format_error(path, message)
  local _, err = pcall(core.raise, "format", "idx", path .. ": " .. message)
  return err
end

--- Returns a TensorDataset of images (u8, as in the file) and labels (i64, 1..C). The files count labels from
--- 0; `classes[label]` is what the file has: 0 .. C - 1.
---@param images_path string
---@param labels_path string
---@return argand.data.TensorDataset|nil dataset, table|nil err
local function idx(images_path, labels_path)
  local images, images_err = ag.load_idx(images_path)
  if not images then return nil, images_err end
  local labels, labels_err = ag.load_idx(labels_path)
  if not labels then return nil, labels_err end
  if images.ndim < 1 then return nil, format_error(images_path, "expected at least 1 dim, got 0") end
  if labels.ndim ~= 1 then
    return nil, format_error(labels_path, ("expected labels in 1 dim, got %d dims"):format(labels.ndim))
  end
  if labels:size(1) ~= images:size(1) then
    return nil, format_error(labels_path, ("%d labels for %d images"):format(labels:size(1), images:size(1)))
  end
  labels = labels:to("i64")
  local highest = labels:numel() > 0 and labels:amax():item() or -1
  if highest > 65535 or (highest >= 0 and labels:amin():item() < 0) then
    return nil, format_error(labels_path, "labels are not in 0 .. 65535")
  end
  local result = dataset.TensorDataset { images, labels:add(1) }
  result.classes = {}
  for class = 0, highest do result.classes[class + 1] = class end
  return result
end

return idx
